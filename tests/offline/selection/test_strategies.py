"""Each strategy's rule against the slow float64 reference."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from demur.offline.selection.context import SelectionContext
from demur.offline.selection.registry import select
from tests.support.cases import Case
from tests.support.selections import case_context, cases, context, dead_problem, truth

SIZES = (1, 13, 40)


def check_ranking(strategy: str, given: SelectionContext, scores: np.ndarray, options: dict[str, Any]) -> None:
    """The chosen weights have the largest `scores` (D,), up to what float32 derivatives can tell apart."""
    indices = select(strategy, given, options).indices.numpy()
    assert len(indices) == given.size
    least = np.sort(scores)[-given.size]
    assert scores[indices].min() >= least - 1e-4 * abs(least)


# --------------------------------------------------------------------------- rules


@pytest.mark.parametrize("size", SIZES)
@cases
def test_wasserstein_laplace_takes_the_smallest_positive_curvature(case: Case, size: int) -> None:
    curvature = np.diag(truth(case.name, prior=0.0, noise=1.0)[1])
    scores = np.where(curvature > 1e-12 * curvature.max(), -curvature, -np.inf)
    check_ranking("wasserstein-laplace", case_context(case, size), scores, {})


def test_wasserstein_laplace_gives_ties_to_the_smaller_index() -> None:
    """All inputs alike: the weights of a linear regression have the same curvature, and none is dead."""
    batches = [(torch.ones(4, 3), torch.zeros(4, 2))]
    model = nn.Linear(3, 2, bias=False)
    found = select("wasserstein-laplace", context(model, batches, 4, likelihood="regression"), {})
    assert found.indices.tolist() == [0, 1, 2, 3]
    assert found.dead_weights == 0


# --------------------------------------------------------------------------- random


def test_random_weights_are_uniform_over_all_weights() -> None:
    given = [select("random", context(*dead_problem(), 13, seed=seed), {}) for seed in range(60)]
    counts = torch.bincount(torch.cat([result.indices for result in given]), minlength=26)
    assert all(result.dead_weights is None for result in given)
    assert counts.min() >= 15  # expected 30, standard deviation 3.9
    assert counts.max() <= 45
