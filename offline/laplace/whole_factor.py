"""The whole covariance as a matrix that every row of derivatives is multiplied with, in the graph that is served.

The formula is that of `demur.service.maths.predictive`, in torch: it becomes a part of the graph.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class WholeFactor:
    """Sigma = L L^T, `scale_tril` (S, S) = L."""

    scale_tril: Tensor

    @property
    def row_size(self) -> int:
        """Numbers in memory for one row, besides the row."""
        return len(self.scale_tril)

    def to(self, device: torch.device) -> "WholeFactor":
        """On another device."""
        return WholeFactor(self.scale_tril.to(device))

    def float(self) -> "WholeFactor":
        """In float32, as it is served."""
        return WholeFactor(self.scale_tril.float())

    def variance(self, rows: Tensor) -> Tensor:
        """|L^T j|^2 of each row j: (B, M, S) -> (B, M)."""
        return (rows @ self.scale_tril).square().sum(2)
