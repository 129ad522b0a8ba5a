"""The squared Mahalanobis distance of features to the nearest class, by a covariance that all classes share.

For features u (F,) of length 1, with U (F, r) the leading eigenvectors of E[u u^T] over the training data, z = U^T u,
and m_k (r,) the mean of z over class k,

    d^2(u) = min_k (z - m_k)^T C^-1 (z - m_k) + |u - U z|^2 / c.

C is the covariance of z within the classes, c the mean of |u - U z|^2 / (F - r), both shrunk towards the mean variance
t of a direction of u: C = (1 - s) C' + s t I, c = (1 - s) c' + s t. That is the distance of Lee et al. (NeurIPS 2018)
on normalised features (Mueller and Hein, ICML 2025), with one variance for all directions but the leading ones:
2 F r + K r multiply-adds an example in place of F^2, and a covariance that few examples determine.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_DIRECTIONS = 32
SHRINKAGE = 0.1
LEAST_VARIANCE = 1e-12  # of features that are the same for all examples
LEAST_LENGTH = 1e-15  # float32 has squares of no shorter features


def unit(parts: Iterable[Tensor]) -> Tensor:
    """Features (B, F_j) of one or more layers, each divided by its length, side by side, of length 1 in all.

    Zeros stay zeros, and what is nearly zero stays short.
    """
    lengths = [(part, torch.linalg.vector_norm(part, dim=1, keepdim=True)) for part in parts]
    units = [part / length.clamp(min=LEAST_LENGTH) for part, length in lengths]
    joined: Tensor = torch.cat(units, dim=1) / len(units) ** 0.5 if len(units) > 1 else units[0]
    return joined


@dataclass(frozen=True)
class Rest:
    """What lies outside the leading directions: reconstruction L^T U^T (r, F), from w to U z; precision 1 / c, ()."""

    reconstruction: Tensor
    precision: Tensor


@dataclass(frozen=True)
class ClassGaussian:
    """projection U L^-T (F, r), from u to w = L^-1 z, with C = L L^T; means L^-1 m_k (K', r) of the classes that have
    examples; `rest` None where r = F."""

    projection: Tensor
    means: Tensor
    rest: Rest | None

    def distance(self, u: Tensor) -> Tensor:
        """d^2, (B,); u (B, F).

        The nearest class is found by |w|^2 - 2 w m_k + |m_k|^2, and its distance as a sum of squares, which float32
        does not cancel.
        """
        w = u @ self.projection
        nearest = (w @ self.means.T - self.means.square().sum(1) / 2).argmax(1)
        inside = _square(w - self.means.index_select(0, nearest))
        if self.rest is None:
            return inside
        return inside + _square(u - w @ self.rest.reconstruction) * self.rest.precision

    def to(self, like: Tensor) -> "ClassGaussian":
        """In the precision and on the device of a tensor."""
        rest = self.rest and Rest(self.rest.reconstruction.to(like), self.rest.precision.to(like))
        return ClassGaussian(self.projection.to(like), self.means.to(like), rest)


def _square(x: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=1)
    return length * length


class ClassSums:
    """Sums over the training data, in float64: u u^T (F, F), u over each class (K, F), examples of each class (K,)."""

    def __init__(self, features: int, classes: int, device: torch.device) -> None:
        self.products = torch.zeros(features, features, dtype=torch.float64, device=device)
        # On the CPU, where sums over the examples of a class are added in their order: the same fit, the same bytes.
        self.totals = torch.zeros(classes, features, dtype=torch.float64)
        self.counts = torch.zeros(classes, dtype=torch.float64)

    def add(self, u: Tensor, targets: Tensor) -> None:
        """One batch: u (B, F), class numbers (B,)."""
        u = u.double()
        self.products.addmm_(u.T, u)
        targets = targets.cpu()
        self.totals.index_add_(0, targets, u.cpu())
        self.counts += torch.bincount(targets, minlength=len(self.counts)).double()

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """What processes that share the batches add up."""
        return self.products, self.totals, self.counts

    def gaussian(self) -> ClassGaussian:
        """The fitted distance, in float64 on the CPU."""
        count, there = self.counts.sum(), self.counts > 0
        products, counts = self.products.cpu() / count, self.counts[there]
        directions = torch.linalg.eigh(products)[1].flip(1)[:, :MOST_DIRECTIONS].contiguous()
        size, rank = directions.shape
        means = (self.totals[there] / counts.unsqueeze(1)) @ directions
        covariance = directions.T @ products @ directions - (means.T * (counts / count)) @ means
        inside, all_of_it = covariance.trace(), products.trace()
        outside = (all_of_it - (directions.T @ products @ directions).trace()).clamp(min=0)
        shared = ((inside + outside) / size).clamp(min=LEAST_VARIANCE)
        shrunk = (1 - SHRINKAGE) * (covariance + covariance.T) / 2 + SHRINKAGE * shared * torch.eye(rank).double()
        scale_tril = torch.linalg.cholesky(shrunk)
        whitened = torch.linalg.solve_triangular(scale_tril, torch.cat([directions.T, means.T], dim=1), upper=False)
        rest = None
        if rank < size:
            precision = 1 / ((1 - SHRINKAGE) * outside / (size - rank) + SHRINKAGE * shared)
            rest = Rest(scale_tril.T @ directions.T, precision)
        return ClassGaussian(whitened[:, :size].T.contiguous(), whitened[:, size:].T.contiguous(), rest)
