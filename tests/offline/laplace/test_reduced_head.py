"""A whole head in the leading directions of its features, against float64 and within the bound for every input."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline.data.shifts import synthetic_shifts
from demur.offline.jacobian.find_head import find_head
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.head_factor import HeadFactor, TriangularFactors
from demur.offline.laplace.reduced_head import (
    ROUNDING,
    ReducedHeadFactor,
    ReducedHeadPosterior,
    reduced_head,
    reduction_bytes,
)
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.peak_memory import peak_bytes
from tests import reference

OUTPUTS, WIDTH, PRIOR, TOLERANCE = 3, 160, 2.0, 0.01


def features(count: int, decay: float, seed: int = 0) -> Tensor:
    """Directions of falling size, 1 last for the bias; float64."""
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(WIDTH - 1, WIDTH - 1, generator=torch.Generator().manual_seed(7)).double())[
        0
    ]
    sizes = decay ** torch.arange(WIDTH - 1, dtype=torch.float64)
    hidden = torch.randn(count, WIDTH - 1, generator=generator, dtype=torch.float64) * sizes @ rotation
    return torch.cat([hidden, torch.ones(count, 1, dtype=torch.float64)], dim=1)


def covariances(decay: float, prior: float = PRIOR) -> Tensor:
    """The (K, m, m) that output k's own weights have in the posterior of a softmax over the whole head."""
    seen = features(300, decay)
    logits = seen @ torch.randn(WIDTH, OUTPUTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 4
    p = logits.softmax(1)
    hessian = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    curvature = torch.einsum("nkl,ni,nj->kilj", hessian, seen, seen).reshape(OUTPUTS * WIDTH, -1)
    whole = torch.linalg.inv(curvature + prior * torch.eye(OUTPUTS * WIDTH, dtype=torch.float64))
    return torch.stack([whole[k * WIDTH : (k + 1) * WIDTH, k * WIDTH : (k + 1) * WIDTH] for k in range(OUTPUTS)])


def exact(covariance: Tensor) -> HeadFactor:
    return HeadFactor(None, TriangularFactors.of(torch.linalg.cholesky(covariance)))


def reduced(decay: float, prior: float = PRIOR, tolerance: float = TOLERANCE) -> ReducedHeadFactor:
    found = reduced_head(exact(covariances(decay, prior)), prior, tolerance)
    assert found is not None
    return found


def test_equals_the_definition() -> None:
    found, sigma, h = reduced(0.8), covariances(0.8), features(9, 0.8, seed=5)
    expected = reference.reduced_head_variance(h.numpy(), sigma.numpy(), found.basis.numpy(), PRIOR)
    np.testing.assert_allclose(found.variance(None, h[:, :-1]), expected, rtol=1e-10)
    assert found.multiply_adds < exact(sigma).multiply_adds / 2


@pytest.mark.parametrize("decay", [0.7, 0.85])
def test_no_input_is_off_by_more_than_the_bound(decay: float) -> None:
    """Inputs like those of training, shifted ones, noise in every direction, and the worst there is for an output."""
    found, sigma = reduced(decay), covariances(decay)
    h = features(50, decay, seed=6)
    worst = []
    for covariance in sigma:
        projection = found.basis @ found.basis.T
        wrong = projection @ covariance @ projection + (torch.eye(WIDTH).double() - projection) / PRIOR - covariance
        root = torch.linalg.inv(torch.linalg.cholesky(covariance))
        values, vectors = torch.linalg.eigh(root @ wrong @ root.T)
        worst += [root.T @ vectors[:, values.abs().argmax()]]
    inputs = torch.cat([h, *synthetic_shifts(h, 0).values(), torch.randn(50, WIDTH).double(), torch.stack(worst)])
    errors = (found.of_features(inputs) / exact(sigma).factors.squared_norms(inputs) - 1).abs()
    assert found.error_bound <= TOLERANCE
    assert float(errors.max()) == pytest.approx(found.error_bound, rel=1e-6)


def test_exact_where_the_basis_holds_all_curvature() -> None:
    """A few directions have curvature, and the prior's variance in the others is not an approximation."""
    found, sigma = reduced(0.3), covariances(0.3)
    inputs = torch.cat([features(20, 0.3, seed=5), torch.randn(20, WIDTH).double()])
    np.testing.assert_allclose(found.of_features(inputs), exact(sigma).factors.squared_norms(inputs), rtol=1e-7)
    assert found.error_bound == ROUNDING


def test_a_smaller_tolerance_takes_more_directions_and_none_where_that_saves_nothing() -> None:
    ranks = [reduced(0.85, tolerance=tolerance).rank for tolerance in (0.2, 1e-4)]
    assert ranks[0] < ranks[1]
    assert reduced_head(exact(covariances(0.999)), PRIOR, TOLERANCE) is None
    assert reduced_head(exact(covariances(0.8)[:, :20, :20]), PRIOR, TOLERANCE) is None


@pytest.mark.parametrize("outputs", [1, 3, 12])
def test_it_takes_no_more_memory_than_predicted(outputs: int) -> None:
    given = exact(covariances(0.85).repeat(4, 1, 1)[:outputs])
    peak = peak_bytes(lambda: reduced_head(given, PRIOR, 0.001))
    assert reduction_bytes(given) / 2 < peak <= reduction_bytes(given)


def test_float32_keeps_its_digits_where_the_posterior_is_far_below_the_prior() -> None:
    """|h|^2 - |B^T h|^2 would be the difference of two numbers 1e5 times as large as the variance."""
    prior, seen = 1e-4, features(300, 0.6)
    sigma = torch.linalg.inv(seen.T @ seen / 0.01 + prior * torch.eye(WIDTH)).expand(OUTPUTS, -1, -1)  # a regression
    found = reduced_head(exact(sigma), prior, 0.2)
    assert found is not None
    h = features(20, 0.6, seed=5) @ found.basis @ found.basis.T
    variance, squares = found.of_features(h), h.square().sum(1, keepdim=True) / prior
    assert float((squares / variance).min()) > 1e5
    np.testing.assert_allclose(found.float().of_features(h.float()), variance, rtol=1e-3)
    single, basis = h.float(), found.basis.float()
    difference = (single.square().sum(1, keepdim=True) - (single @ basis).square().sum(1, keepdim=True)) / prior
    assert float((difference.double().abs() / variance).max()) > 0.01


def test_the_posterior_takes_the_rows_of_the_jacobian() -> None:
    """Whatever the order of the weights: here the biases follow all weights."""
    torch.manual_seed(0)
    network, inputs = (
        nn.Sequential(nn.Linear(5, WIDTH - 1), nn.Tanh(), nn.Linear(WIDTH - 1, OUTPUTS)),
        torch.randn(4, 5),
    )
    copied, layout = private_copy(network, torch.device("cpu")), WeightLayout.of(network)
    indices = torch.arange(layout.total - OUTPUTS * WIDTH, layout.total)
    jacobian = make_jacobian(copied, layout, indices, inputs, find_head(copied, inputs))
    found, rows = reduced(0.8), reference.full_jacobian(network, inputs)[1][:, :, indices.numpy()]
    variance = ReducedHeadPosterior.of(found, jacobian).variance(rows)
    hidden = jacobian.head_input(inputs)
    assert found.row_size >= 3 * found.rank
    np.testing.assert_allclose(variance, found.variance(None, hidden.double()), rtol=1e-6)
