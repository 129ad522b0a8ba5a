"""Leverage: exact, from a sample of examples, and how far the second is from the first."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from probity.offline.selection.registry import select
from probity.offline.selection.sample import Sample
from probity.offline.selection.strategies.leverage import exact_leverage
from probity.offline.selection.strategies.sampled_leverage import sampled_leverage
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


def test_leverage_is_sampled_where_the_covariance_does_not_fit() -> None:
    case = CASE["mlp-classification-2"]
    tight = case_context(case, 9, count=60, memory_bytes=2_000_000)
    forced = case_context(case, 9, count=60)
    found = select("leverage", tight, {})
    assert found.explanation is not None
    assert "60 examples" in found.explanation
    assert torch.equal(found.indices, select("leverage", forced, {"curvature_examples": 60}).indices)
    assert select("leverage", forced, {}).explanation is None


def test_a_sample_whose_kernel_does_not_fit_is_an_error() -> None:
    given = case_context(CASE["cnn-classification-10"], 9, memory_bytes=500_000)
    with pytest.raises(
        ValueError, match=r"\['curvature_examples'\]: found 20, expected at most 6, whose kernel fits in"
    ):
        select("leverage", given, {"curvature_examples": 20})


@pytest.mark.parametrize("size", [1, 7, 20])
def test_dead_weights_have_no_leverage(size: int) -> None:
    for options in ({}, {"curvature_examples": 4}):
        assert not set(select("leverage", context(*dead_problem(), size), options).indices.tolist()) & DEAD


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
    exact = exact_leverage(given, given.candidate_weights, Sample.of(given, None))
    best = exact[select("leverage", given, {"examples": None}).indices].sum()

    def kept(strategy: str, **options: object) -> float:
        return float(exact[select(strategy, given, options).indices].sum() / best)

    shares = [kept("leverage", curvature_examples=count) for count in (20, 100, 200)]
    assert shares[0] > 0.9
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 0.9999
    assert shares[0] > kept("gradient") + 0.1
