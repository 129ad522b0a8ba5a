"""Greedy choice against trying every weight at every step, and what it is for: close to the full predictive."""

from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from probity.offline.selection.registry import select
from probity.offline.selection.strategies.greedy import match
from tests import reference
from tests.support.cases import Case
from tests.support.selections import CASE, PRIOR, case_context, cases, context, problem, truth


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


@cases
def test_the_pool_is_every_candidate_where_it_fits(case: Case) -> None:
    given = case_context(case, 12, prior_precision=PRIOR)
    found = select("greedy", given, {})
    assert len(found.indices) == 12
    assert found.explanation is None
    assert torch.equal(found.indices, found.indices.unique())


def divergence(indices: Tensor, name: str, scaling: Literal["subnetwork", "none"]) -> float:
    """Mean over training outputs of KL(full || subnetwork) with the noise of a logit."""
    jacobian, precision = truth(name)
    rows, total = jacobian.reshape(-1, len(precision)), len(precision)
    inside = indices.numpy()
    share = len(inside) / total if scaling == "subnetwork" else 1.0
    part = precision[np.ix_(inside, inside)] - (1 - share) * PRIOR * np.eye(len(inside))
    noise = 8 / np.pi
    a = np.einsum("ns,st,nt->n", rows, np.linalg.inv(precision), rows) + noise
    b = np.einsum("ns,st,nt->n", rows[:, inside], np.linalg.inv(part), rows[:, inside]) + noise
    return float(np.mean(a / b - 1 - np.log(a / b)) / 2)


@pytest.mark.parametrize("scaling", ["subnetwork", "none"])
@pytest.mark.parametrize("name", ["mlp-classification-2", "cnn-classification-10"])
def test_it_is_closer_to_the_full_network_than_others(name: str, scaling: Literal["subnetwork", "none"]) -> None:
    given = case_context(CASE[name], 20, prior_precision=PRIOR, prior_scaling=scaling)
    mine = divergence(select("greedy", given, {}).indices, name, scaling)
    others = [divergence(select(other, given, {}).indices, name, scaling) for other in ("random", "magnitude")]
    assert mine < min(others)


def test_a_smaller_pool_is_drawn_by_the_seed_and_told() -> None:
    first, again, other = (select("greedy", context(*problem(), 6, seed=seed), {"pool": 30}) for seed in (0, 0, 1))
    assert torch.equal(first.indices, again.indices)
    assert not torch.equal(first.indices, other.indices)
    assert first.explanation == "greedy among 30 weights drawn from 65"


def test_more_weights_than_are_compared_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"found subnetwork_size 31, expected at most 30, the weights that are"):
        select("greedy", context(*problem(), 31), {"pool": 30})
    with pytest.raises(ValueError, match="found 66, expected at most the 65 weights"):
        select("greedy", context(*problem(), 66), {})


def test_outputs_that_a_shift_leaves_undefined_do_not_count() -> None:
    torch.manual_seed(0)
    inputs, targets = torch.rand(40, 3) + 0.2, torch.randint(0, 2, (40,))
    model = nn.Sequential(Logarithm(), nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    given = context(model, [(inputs, targets)], 6)
    with_names = select("greedy", given, {"shifts": ["permuted-columns"]}).indices
    assert torch.equal(select("greedy", given, {"shifts": ["widened-range", "permuted-columns"]}).indices, with_names)
    with pytest.raises(ValueError, match="shifts: found no finite output under widened-range"):
        select("greedy", given, {"shifts": ["widened-range"]})
    assert torch.isfinite(given.job.weights[select("novelty", given, {}).indices]).all()


class Logarithm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.log()


@pytest.mark.parametrize(("option", "value"), [("pool", 0), ("examples", 2.5), ("live_only", 1), ("shifts", ["fog"])])
def test_bad_options(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{option}.*: found"):
        select("greedy", context(*problem(), 6), {option: value})
