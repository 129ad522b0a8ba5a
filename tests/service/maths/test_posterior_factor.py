"""service/maths/posterior_factor.py: the variance is the quadratic form with the covariance."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from demur.service.maths.posterior_factor import CholeskyPosterior
from tests.support.bundles import dense_covariance, draw_cholesky

Array = npt.NDArray[Any]


def slow_variance(jacobian: Array, covariance: Array) -> Array:
    return np.array([[row @ covariance @ row for row in example] for example in jacobian.astype(np.float64)])


def posteriors() -> list[CholeskyPosterior]:
    rng = np.random.default_rng(0)
    return [draw_cholesky(rng, size) for size in (1, 7, 64, 65, 257, 300)]


@pytest.mark.parametrize("posterior", posteriors(), ids=lambda p: p.size)
@pytest.mark.parametrize(("batch", "outputs"), [(1, 1), (4, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variance_is_the_quadratic_form(posterior: CholeskyPosterior, batch: int, outputs: int, dtype: Any) -> None:
    jacobian = np.random.default_rng(1).normal(size=(batch, outputs, posterior.size)).astype(dtype)
    before = jacobian.copy()
    found = posterior.variance(jacobian)
    assert found.shape == (batch, outputs)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, slow_variance(jacobian, dense_covariance(posterior)), rtol=1e-5)
    np.testing.assert_array_equal(jacobian, before)


def test_the_factor_of_an_inverse_precision() -> None:
    """Sigma = (H + p I)^-1."""
    root = np.random.default_rng(2).normal(size=(9, 9))
    curvature, prior = root @ root.T, 0.3
    covariance = np.linalg.inv(curvature + prior * np.eye(9))
    jacobian = np.random.default_rng(3).normal(size=(5, 2, 9))
    expected = slow_variance(jacobian, covariance)
    cholesky = CholeskyPosterior(np.linalg.cholesky(covariance))
    np.testing.assert_allclose(cholesky.variance(jacobian), expected, rtol=1e-10)


def test_it_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        posteriors()[0].scale_tril = np.eye(1)  # type: ignore[misc]


def test_zeros_in_the_jacobian_have_no_variance() -> None:
    for posterior in posteriors():
        assert not posterior.variance(np.zeros((2, 3, posterior.size), np.float32)).any()
