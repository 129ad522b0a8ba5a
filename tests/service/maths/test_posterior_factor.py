"""service/maths/posterior_factor.py: the variance of each kind is the quadratic form with its covariance."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probity.service.maths.posterior_factor import CholeskyPosterior, LowRankPosterior, PosteriorFactor
from tests.support.bundles import dense_covariance, draw_cholesky, draw_low_rank

Array = npt.NDArray[Any]


def slow_variance(jacobian: Array, covariance: Array) -> Array:
    return np.array([[row @ covariance @ row for row in example] for example in jacobian.astype(np.float64)])


def posteriors() -> list[PosteriorFactor]:
    rng = np.random.default_rng(0)
    ranks = [draw_low_rank(rng, size, rank, prior) for size, rank, prior in [(1, 1, 2.0), (7, 1, 0.1), (7, 4, 3.0)]]
    return [*(draw_cholesky(rng, size) for size in (1, 7, 64, 65, 257, 300)), *ranks, draw_low_rank(rng, 7, 7, 0.5)]


@pytest.mark.parametrize("posterior", posteriors(), ids=lambda p: f"{type(p).__name__}-{p.size}")
@pytest.mark.parametrize(("batch", "outputs"), [(1, 1), (4, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variance_is_the_quadratic_form(posterior: PosteriorFactor, batch: int, outputs: int, dtype: Any) -> None:
    jacobian = np.random.default_rng(1).normal(size=(batch, outputs, posterior.size)).astype(dtype)
    before = jacobian.copy()
    found = posterior.variance(jacobian)
    assert found.shape == (batch, outputs)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, slow_variance(jacobian, dense_covariance(posterior)), rtol=1e-5)
    np.testing.assert_array_equal(jacobian, before)


def test_of_full_rank_it_is_the_whole_posterior() -> None:
    """Sigma = (H + p I)^-1 with all of H's eigenpairs, none left to the prior."""
    root = np.random.default_rng(2).normal(size=(9, 9))
    curvature, prior = root @ root.T, 0.3
    values, vectors = np.linalg.eigh(curvature)
    covariance = np.linalg.inv(curvature + prior * np.eye(9))
    jacobian = np.random.default_rng(3).normal(size=(5, 2, 9))
    expected = slow_variance(jacobian, covariance)
    low_rank = LowRankPosterior(values[::-1], vectors[:, ::-1], prior)
    np.testing.assert_allclose(low_rank.variance(jacobian), expected, rtol=1e-10)
    cholesky = CholeskyPosterior(np.linalg.cholesky(covariance))
    np.testing.assert_allclose(cholesky.variance(jacobian), expected, rtol=1e-10)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.floats(1e-3, 1e3))
def test_it_is_never_below_the_whole_posterior_and_never_above_the_prior(seed: int, rank: int, prior: float) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(12, 12)) * np.logspace(1, -3, 12)
    values, vectors = np.linalg.eigh(root.T @ root)
    values, vectors = values[::-1].clip(min=0), vectors[:, ::-1]
    jacobian = rng.normal(size=(3, 2, 12))
    found = LowRankPosterior(values[:rank], vectors[:, :rank], prior).variance(jacobian)
    whole = ((jacobian @ vectors) ** 2 / (values + prior)).sum(axis=2)
    assert (found >= whole * (1 - 1e-12)).all()
    assert (found <= (jacobian**2).sum(axis=2) / prior * (1 + 1e-12)).all()


@pytest.mark.parametrize("largest", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("rows", ["anywhere", "within the span", "along the first"])
def test_rounded_to_float32_it_keeps_four_digits(largest: float, rows: str) -> None:
    """Also where the second term, that is divided by p alone, should vanish and is left with rounding."""
    size, rank, prior = 400, 150, 1.0
    rng = np.random.default_rng(4)
    vectors = np.linalg.qr(rng.normal(size=(size, size)))[0]
    exact = LowRankPosterior(np.logspace(np.log10(largest), 0, rank), vectors[:, :rank], prior)
    rounded = LowRankPosterior(exact.eigenvalues.astype(np.float32), exact.eigenvectors.astype(np.float32), prior)
    width = {"anywhere": size, "within the span": rank, "along the first": 1}[rows]
    jacobian = (rng.normal(size=(32, 2, width)) @ vectors[:, :width].T).astype(np.float32)
    np.testing.assert_allclose(rounded.variance(jacobian), exact.variance(jacobian.astype(np.float64)), rtol=1e-4)


@pytest.mark.parametrize("posterior", posteriors(), ids=lambda p: type(p).__name__)
def test_it_cannot_be_changed(posterior: PosteriorFactor) -> None:
    for field in dataclasses.fields(posterior):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(posterior, field.name, 1.0)


def test_zeros_in_the_jacobian_have_no_variance() -> None:
    for posterior in posteriors():
        assert not posterior.variance(np.zeros((2, 3, posterior.size), np.float32)).any()
