"""From curvature to posterior: the factor, the jitter it needed, variances and evidence for many precisions."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from demur.offline.laplace.posterior import PRIOR_GRID, FactorizationError, Spectrum, factor, posterior_precision


def curvature(size: int, rank: int, seed: int, scale: float = 1.0) -> Tensor:
    """A positive semi-definite matrix of the given rank."""
    root = torch.randn(rank, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return scale * root.T @ root


# --------------------------------------------------------------------------- factor


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 9), st.integers(0, 12), st.floats(-3, 3), st.integers(0, 99))
def test_the_factor_squared_is_the_covariance(size: int, rank: int, log_prior: float, seed: int) -> None:
    precision = posterior_precision(curvature(size, rank, seed), 10**log_prior)
    scale_tril, jitter = factor(precision)
    assert jitter == 0
    assert scale_tril.dtype == torch.float64
    assert torch.equal(scale_tril, scale_tril.tril())
    assert (scale_tril.diagonal() > 0).all()
    expected = np.linalg.inv(precision.numpy())
    np.testing.assert_allclose((scale_tril @ scale_tril.T).numpy(), expected, rtol=1e-7, atol=1e-9 * expected.max())


def test_one_weight() -> None:
    scale_tril, jitter = factor(torch.tensor([[4.0]], dtype=torch.float64))
    assert scale_tril.tolist() == [[0.5]]
    assert jitter == 0


def test_the_prior_is_added_to_the_diagonal_once() -> None:
    ggn = curvature(3, 3, 0)
    expected = ggn.numpy().copy()
    for i in range(3):
        expected[i, i] += 0.25
    np.testing.assert_array_equal(posterior_precision(ggn, 0.25).numpy(), expected)


def test_a_singular_matrix_is_factored_with_jitter_that_is_told() -> None:
    precision = torch.ones(4, 4, dtype=torch.float64)
    scale_tril, jitter = factor(precision)
    assert 0 < jitter <= 1e-6
    assert torch.equal(scale_tril, scale_tril.tril())
    assert (scale_tril.diagonal() > 0).all()
    expected = np.linalg.inv(precision.numpy() + jitter * np.eye(4))
    np.testing.assert_allclose((scale_tril @ scale_tril.T).numpy(), expected, rtol=1e-2)


def test_the_jitter_follows_the_scale_of_the_matrix() -> None:
    jitters = [factor(scale * torch.ones(4, 4, dtype=torch.float64))[1] for scale in (1.0, 1e6)]
    assert jitters[1] == pytest.approx(1e6 * jitters[0])


def test_the_matrix_given_is_not_changed() -> None:
    precision = torch.ones(3, 3, dtype=torch.float64)
    factor(precision)
    assert torch.equal(precision, torch.ones(3, 3, dtype=torch.float64))


@pytest.mark.parametrize(
    "precision",
    [torch.diag(torch.tensor([3.0, -1.0, 2.0])), torch.full((2, 2), math.nan), torch.zeros(2, 2)],
    ids=["indefinite", "NaN", "zero"],
)
def test_what_cannot_be_factored_is_an_error(precision: Tensor) -> None:
    with pytest.raises(FactorizationError, match=r"no Cholesky factor .* raise prior_precision"):
        factor(precision.double())


def test_the_jitter_named_in_the_error_was_really_tried() -> None:
    """The smallest eigenvalue, -5e-6, lies within the last steps of the jitter."""
    precision = torch.diag(torch.tensor([1.0, 1.0, 1.0, 1.0, -5e-6], dtype=torch.float64))
    try:
        _, jitter = factor(precision)
    except FactorizationError as error:
        (number,) = re.findall(r"with (\S+) added", str(error))
        _, info = torch.linalg.cholesky_ex(precision + float(number) * torch.eye(5, dtype=torch.float64))
        assert int(info) != 0, f"the error says that {number} was not enough, and it is"
    else:
        assert jitter > 5e-6


# --------------------------------------------------------------------------- spectrum


@settings(derandomize=True, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(0, 10),
    st.lists(st.floats(-4, 4), min_size=1, max_size=5),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_variances_equal_those_of_the_inverse(
    size: int, rank: int, log_precisions: list[float], outputs: int, seed: int
) -> None:
    ggn = curvature(size, rank, seed)
    jacobian = torch.randn(2, outputs, size, generator=torch.Generator().manual_seed(seed + 1))
    precisions = 10.0 ** np.array(log_precisions)
    found = Spectrum.of(ggn).variances(jacobian, precisions)
    assert found.shape == (2, outputs, len(precisions))
    for g, precision in enumerate(precisions):
        inverse = np.linalg.inv(ggn.numpy() + precision * np.eye(size))
        for b in range(2):
            for k in range(outputs):
                row = jacobian[b, k].double().numpy()
                assert found[b, k, g] == pytest.approx(row @ inverse @ row, rel=1e-6)


def test_variances_equal_those_of_the_factor_on_the_whole_grid() -> None:
    ggn = curvature(6, 3, 5, scale=100.0)
    jacobian = torch.randn(4, 2, 6, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    found = Spectrum.of(ggn).variances(jacobian, PRIOR_GRID)
    for g, precision in enumerate(PRIOR_GRID):
        scale_tril, _ = factor(posterior_precision(ggn, float(precision)))
        np.testing.assert_allclose(found[:, :, g], (jacobian @ scale_tril).square().sum(2).numpy(), rtol=1e-7)


def test_eigenvalues_below_zero_are_rounding() -> None:
    spectrum = Spectrum.of(curvature(12, 2, 7, scale=1e6))
    assert (spectrum.values >= 0).all()
    assert (Spectrum.of(torch.zeros(2, 2, dtype=torch.float64)).values == 0).all()


# --------------------------------------------------------------------------- evidence


def laplace_evidence(ggn: np.ndarray, weights: np.ndarray, precision: float) -> float:
    """log N(w; 0, I / p) - 0.5 log det((H + p I) / 2 pi), without the likelihood at w, which p does not change."""
    size = len(weights)
    log_prior = 0.5 * size * math.log(precision / (2 * math.pi)) - 0.5 * precision * float(weights @ weights)
    sign, log_determinant = np.linalg.slogdet((ggn + precision * np.eye(size)) / (2 * math.pi))
    assert sign == 1
    return log_prior - 0.5 * float(log_determinant)


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 8), st.integers(0, 10), st.integers(0, 99))
def test_evidence_differences_equal_those_of_the_laplace_approximation(size: int, rank: int, seed: int) -> None:
    ggn = curvature(size, rank, seed)
    weights = torch.randn(size, generator=torch.Generator().manual_seed(seed + 1))
    found = Spectrum.of(ggn).log_evidence(weights, PRIOR_GRID)
    expected = [laplace_evidence(ggn.numpy(), weights.double().numpy(), float(p)) for p in PRIOR_GRID]
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0], rtol=1e-8, atol=1e-6)


def test_evidence_is_the_marginal_likelihood_of_a_linear_gaussian_model() -> None:
    """There the Laplace approximation is exact: y ~ N(0, X X^T / p + sigma^2 I), expanded at each p's own optimum."""
    rng = np.random.default_rng(0)
    x, sigma = rng.normal(size=(20, 3)), 0.5
    y = x @ np.array([1.0, -0.3, 0.0]) + sigma * rng.normal(size=20)
    ggn = x.T @ x / sigma**2
    found, exact = [], []
    for p in (0.01, 0.5, 1.0, 40.0):
        optimum = np.linalg.solve(ggn + p * np.eye(3), x.T @ y / sigma**2)
        fit = -0.5 * float(np.sum((y - x @ optimum) ** 2)) / sigma**2
        (rest,) = Spectrum.of(torch.as_tensor(ggn)).log_evidence(torch.as_tensor(optimum), np.array([p]))
        found.append(fit + rest)
        covariance = x @ x.T / p + sigma**2 * np.eye(20)
        exact.append(-0.5 * float(y @ np.linalg.solve(covariance, y)) - 0.5 * np.linalg.slogdet(covariance)[1])
    np.testing.assert_allclose(np.diff(found), np.diff(exact), rtol=1e-9, atol=1e-9)
