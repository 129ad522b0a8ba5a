"""The posterior as matrices that every row of derivatives is multiplied with, in the graph that is served.

The formulas are those of `probity.service.maths.predictive`, in torch: they become a part of the graph.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from probity.service.maths.posterior_factor import LowRankPosterior, PosteriorFactor


@dataclass(frozen=True)
class CholeskyFactor:
    """Sigma = L L^T, `scale_tril` (S, S) = L."""

    scale_tril: Tensor

    @property
    def row_size(self) -> int:
        """Numbers in memory for one row, besides the row."""
        return len(self.scale_tril)

    def to(self, device: torch.device) -> "CholeskyFactor":
        """On another device."""
        return CholeskyFactor(self.scale_tril.to(device))

    def float(self) -> "CholeskyFactor":
        """In float32, as it is served."""
        return CholeskyFactor(self.scale_tril.float())

    def variance(self, rows: Tensor) -> Tensor:
        """|L^T j|^2 of each row j: (B, M, S) -> (B, M)."""
        return (rows @ self.scale_tril).square().sum(2)


@dataclass(frozen=True)
class LowRankFactor:
    """Sigma = U diag(known^2) U^T + rest^2 (I - U U^T): `vectors` (S, k) = U with orthonormal columns, `known` (k,)."""

    vectors: Tensor
    known: Tensor
    rest: Tensor

    @property
    def row_size(self) -> int:
        """Numbers in memory for one row, besides the row."""
        return sum(self.vectors.shape)

    def to(self, device: torch.device) -> "LowRankFactor":
        """On another device."""
        return LowRankFactor(*(part.to(device) for part in (self.vectors, self.known, self.rest)))

    def float(self) -> "LowRankFactor":
        """In float32, as it is served."""
        return LowRankFactor(self.vectors.float(), self.known.float(), self.rest.float())

    def variance(self, rows: Tensor) -> Tensor:
        """sum_i (known_i (U^T j)_i)^2 + rest^2 |j - U U^T j|^2 of each row j: (B, M, S) -> (B, M)."""
        inside = rows @ self.vectors
        outside = (rows - inside @ self.vectors.T) * self.rest
        return (inside * self.known).square().sum(2) + outside.square().sum(2)


WholeFactor = CholeskyFactor | LowRankFactor


def whole_factor(posterior: PosteriorFactor) -> WholeFactor:
    """The matrices of a posterior."""
    if isinstance(posterior, LowRankPosterior):
        values = torch.as_tensor(posterior.eigenvalues, dtype=torch.float64) + posterior.prior_precision
        rest = torch.tensor(posterior.prior_precision, dtype=torch.float64).rsqrt()
        return LowRankFactor(torch.as_tensor(posterior.eigenvectors), values.rsqrt(), rest)
    return CholeskyFactor(torch.as_tensor(posterior.scale_tril))


def whole_size(posterior: PosteriorFactor) -> int:
    """How many numbers `whole_factor` holds."""
    return posterior.size * (posterior.rank if isinstance(posterior, LowRankPosterior) else posterior.size)
