"""Greedy choice against trying every weight at every step, and what it is for: close to the full predictive."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from paper.strategies.covariance import full_curvature
from paper.strategies.greedy import closest, match, outputs_to_match
from probity.offline.selection.context import SelectionContext
from probity.offline.selection.registry import select
from tests import reference
from tests.support.selections import CASE, PRIOR, case_context, truth


@given(seed=st.integers(0, 10**6), pool=st.integers(1, 9), rows=st.integers(1, 12), data=st.data())
def test_each_weight_is_the_best_next_one(seed: int, pool: int, rows: int, data: st.DataObject) -> None:
    size, scale = data.draw(st.integers(1, pool)), data.draw(st.sampled_from([0.1, 1.0]))
    generator = np.random.default_rng(seed)
    j = generator.normal(size=(rows, pool))
    training = generator.normal(size=(2 * rows, pool))
    curvature = training.T @ training
    full = np.einsum("ns,st,nt->n", j, np.linalg.inv(curvature + np.eye(pool)), j)
    precision = curvature + scale * np.eye(pool)
    found = match(torch.tensor(precision), torch.tensor(j), size, 0.3, torch.tensor(full))
    assert found.tolist() == reference.greedy(precision, j, size, 0.3, full)


def greedy(given: SelectionContext) -> Tensor:
    every = given.candidate_weights
    order = closest(given, full_curvature(given, every), outputs_to_match(given, every))
    return every[order].sort().values


def divergence(indices: Tensor, name: str) -> float:
    """Mean over training outputs of KL(full || subnetwork) with the noise of a logit."""
    jacobian, precision = truth(name)
    rows, total = jacobian.reshape(-1, len(precision)), len(precision)
    inside = indices.numpy()
    share = len(inside) / total
    part = precision[np.ix_(inside, inside)] - (1 - share) * PRIOR * np.eye(len(inside))
    noise = 8 / np.pi
    a = np.einsum("ns,st,nt->n", rows, np.linalg.inv(precision), rows) + noise
    b = np.einsum("ns,st,nt->n", rows[:, inside], np.linalg.inv(part), rows[:, inside]) + noise
    return float(np.mean(a / b - 1 - np.log(a / b)) / 2)


@pytest.mark.parametrize("name", ["mlp-classification-2", "cnn-classification-10"])
def test_it_is_closer_to_the_full_network_than_others(name: str) -> None:
    given = case_context(CASE[name], 20, prior_precision=PRIOR)
    mine = divergence(greedy(given), name)
    others = [divergence(select(other, given, {}).indices, name) for other in ("random", "gradient")]
    assert mine < min(others)
