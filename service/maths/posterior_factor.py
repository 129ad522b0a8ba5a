"""The two forms of a posterior over the chosen weights; each gives the variance of the outputs. Pure NumPy.

The formulas are in `probity.service.maths.predictive`, the storage in `probity.service.format.posterior_tensors`.
"""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from probity.service.maths.predictive import functional_variance, low_rank_variance

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class CholeskyPosterior:
    """The whole covariance, Sigma = scale_tril @ scale_tril.T: lower triangular (S, S) with a positive diagonal."""

    scale_tril: Array

    @property
    def size(self) -> int:
        """S."""
        return len(self.scale_tril)

    def variance(self, jacobian: Array) -> Array:
        """Diagonal of J Sigma J^T; jacobian (B, K, S) -> (B, K)."""
        return functional_variance(jacobian, self.scale_tril)


@dataclass(frozen=True, eq=False)
class LowRankPosterior:
    """The k directions with the largest curvature, and the prior for the rest.

    Sigma = sum_i u_i u_i^T / (e_i + p) + (I - U U^T) / p: eigenvalues e (k,) of the curvature, descending and not
    negative; eigenvectors U (S, k), orthonormal columns; prior_precision p = lambda_S > 0. (k + 1) S numbers in place
    of S (S + 1) / 2.
    """

    eigenvalues: Array
    eigenvectors: Array
    prior_precision: float

    @property
    def size(self) -> int:
        """S."""
        return len(self.eigenvectors)

    @property
    def rank(self) -> int:
        """k."""
        return len(self.eigenvalues)

    def variance(self, jacobian: Array) -> Array:
        """Diagonal of J Sigma J^T; jacobian (B, K, S) -> (B, K)."""
        return low_rank_variance(jacobian, self.eigenvalues, self.eigenvectors, self.prior_precision)


PosteriorFactor = CholeskyPosterior | LowRankPosterior
