"""The posterior over the chosen weights, which gives the variance of the outputs. Pure NumPy.

The formula is in `demur.service.maths.predictive`, the storage in `demur.service.format.posterior_tensors`.
"""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from .predictive import functional_variance

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
