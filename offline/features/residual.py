"""The squared length of what features have outside the principal subspace of the training data's features.

For features u (F,) of length 1, and U (F, r) the leading eigenvectors of E[u u^T] that hold 99 % of its trace, r < F,

    d^2(u) = |u - U U^T u|^2.

This is the residual of ViM (Wang et al., CVPR 2022) on normalised features, without its virtual logit.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

HELD = 0.99


@dataclass(frozen=True)
class Residual:
    """basis U (F, r)."""

    basis: Tensor

    @classmethod
    def of(cls, products: Tensor) -> "Residual":
        """products (F, F): the sum of u u^T over the training data; in float64 on the CPU."""
        values, vectors = torch.linalg.eigh(products.cpu())
        held = values.clamp(min=0).flip(0).cumsum(0)
        rank = min(int((held < HELD * held[-1]).sum()) + 1, max(1, len(values) - 1))
        return cls(vectors.flip(1)[:, :rank].contiguous())

    def distance(self, u: Tensor) -> Tensor:
        """d^2, (B,); u (B, F)."""
        length: Tensor = torch.linalg.vector_norm(u - (u @ self.basis) @ self.basis.T, dim=1)
        return length * length

    def to(self, like: Tensor) -> "Residual":
        """In the precision and on the device of a tensor."""
        return Residual(self.basis.to(like))
