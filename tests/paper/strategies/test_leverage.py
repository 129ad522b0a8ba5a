"""Leverage: exact, from a sample of examples, and how far the second is from the first."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paper.strategies.leverage import exact_leverage
from paper.strategies.sampled_leverage import draw, sampled_leverage
from probity.offline.selection.context import largest
from probity.offline.selection.sample import Sample
from probity.offline.selection.squared_derivatives import squared_derivatives
from tests import reference
from tests.support.cases import Case
from tests.support.selections import (
    CASE,
    COUNT,
    DEAD,
    PRIOR,
    case_context,
    cases,
    context,
    dead_problem,
    truth,
)


@cases
def test_exact_leverage_equals_the_reference(case: Case) -> None:
    given = case_context(case, 1, prior_precision=PRIOR)
    found = exact_leverage(given, given.candidate_weights, Sample.of(given, None))
    np.testing.assert_allclose(found, reference.leverage(*truth(case.name)), rtol=1e-3, atol=1e-9)


@cases
@pytest.mark.parametrize("memory", [2**21, 2**26])
def test_sampled_leverage_with_all_examples_is_exact(case: Case, memory: int) -> None:
    """The identities behind it hold exactly; a small memory takes the weights in many groups."""
    kernel = 16 * 8 * (COUNT * case.outputs) ** 2
    given = case_context(case, 1, prior_precision=PRIOR, memory_bytes=memory + kernel)
    expected = reference.leverage(*truth(case.name))
    np.testing.assert_allclose(
        sampled_leverage(given, given.candidate_weights, case.data(COUNT)[0]), expected, rtol=1e-3, atol=1e-8
    )


def test_a_sample_whose_kernel_does_not_fit_is_an_error() -> None:
    given = case_context(CASE["cnn-classification-10"], 9, memory_bytes=500_000)
    with pytest.raises(
        ValueError, match=r"\['curvature_examples'\]: found 20, expected at most 6, whose kernel fits in"
    ):
        draw(given, 20)


def test_dead_weights_have_no_leverage() -> None:
    given = context(*dead_problem(), 1)
    every, dead = given.candidate_weights, sorted(DEAD)
    exact = exact_leverage(given, every, Sample.of(given, None))
    for scores in (exact, sampled_leverage(given, every, draw(given, 4))):
        assert scores[dead].max() < scores.median()


def trained_regression() -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """Two clusters of one input; D = 241, 200 examples, a fit that leaves the noise."""
    torch.manual_seed(0)
    x = torch.cat([torch.randn(100, 1) * 0.3 - 1.5, torch.randn(100, 1) * 0.3 + 1.5])[torch.randperm(200)]
    y = torch.sin(2 * x) + 0.1 * torch.randn_like(x)
    model = nn.Sequential(nn.Linear(1, 15), nn.Tanh(), nn.Linear(15, 12), nn.ReLU(), nn.Linear(12, 1))
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimiser.step()
    return model, [(x, y)]


@pytest.mark.parametrize("seed", range(3))
def test_the_error_of_sampled_leverage_is_small_and_falls_with_the_sample(seed: int) -> None:
    """Share of the exact leverage that the weights chosen from a sample have, S = D / 10."""
    model, batches = trained_regression()
    given = context(model, batches, 24, outputs=1, likelihood="regression", seed=seed)
    every = given.candidate_weights
    exact = exact_leverage(given, every, Sample.of(given, None))

    def kept(scores: Tensor) -> float:
        """What the largest scores have of the most that as many weights can have."""
        return float(exact[largest(scores.numpy(), 24)].sum() / exact[largest(exact.numpy(), 24)].sum())

    shares = [kept(sampled_leverage(given, every, draw(given, count))) for count in (20, 100, 200)]
    assert shares[0] > 0.9
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 0.9999
    assert shares[0] > kept(squared_derivatives(given, every, None)) + 0.1
