"""A whole head's covariance in the leading directions of its features, and the prior's in all others.

The curvature of the head's weights lies in the span of the training features: outside of it, the covariance Sigma_kk of
output k's own weights is the prior's, I / p with p = lambda_S. Few directions hold most of the curvature. With
G_k = Sigma_kk^-1 - p I, that of output k's weights when all other weights are integrated out, the leading eigenvectors
B (m, r) of sum_k G_k, z = B^T h, and B^T Sigma_kk B = L_k L_k^T,

    variance_k = |L_k^T z|^2 + |h - B z|^2 / p,

2 m r + K r^2 multiply-adds an example in place of K m^2. This is exact for h in the span of B. For any other h it is
off, in either direction, by at most the share

    max_k || T_k^-1 (B L_k L_k^T B^T + (I - B B^T) / p - Sigma_kk) T_k^-T ||_2,    Sigma_kk = T_k T_k^T:

a bound for every input there is, so that no data enter it. |h - B z|^2 and not |h|^2 - |z|^2, which float32 would
cancel where h hardly leaves the span.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from offline.jacobian.jacobian import SubnetworkJacobian
from offline.laplace.block_factor import weights_by_output
from offline.laplace.head_factor import HeadFactor, TriangularFactors, own_features
from offline.runtime.arrays import Array, to_numpy

RANKS = tuple(step << doubling for doubling in range(4, 14) for step in (2, 3))  # 32, 48, 64, 96, 128, ...
LARGEST_SHARE = 0.5  # of the multiply-adds without the reduction
ROUNDING = 1e-6  # relative, in float32, as variances are served


@dataclass(frozen=True)
class ReducedHeadFactor:
    """`features` as for `HeadFactor`; basis B (m, r) with orthonormal columns, `factors` L_k (r, r), prior_std
    p^-1/2; error_bound: the largest relative error of a variance, for any input."""

    features: Tensor | None
    basis: Tensor
    factors: TriangularFactors
    prior_std: Tensor
    error_bound: float

    @property
    def rank(self) -> int:
        """r."""
        return self.basis.shape[1]

    @property
    def multiply_adds(self) -> int:
        """Those of one example."""
        return 2 * self.basis.numel() + self.factors.multiply_adds

    @property
    def row_size(self) -> int:
        """Numbers in memory for one output of one example: its products, and a share of what all outputs share."""
        return 3 * self.rank + -(-3 * len(self.basis) // self.factors.outputs)

    def to(self, device: torch.device) -> "ReducedHeadFactor":
        """On another device."""
        features = None if self.features is None else self.features.to(device)
        basis, prior_std = self.basis.to(device), self.prior_std.to(device)
        return ReducedHeadFactor(features, basis, self.factors.to(device), prior_std, self.error_bound)

    def float(self) -> "ReducedHeadFactor":
        """In float32, as it is served."""
        basis, prior_std = self.basis.float(), self.prior_std.float()
        return ReducedHeadFactor(self.features, basis, self.factors.float(), prior_std, self.error_bound)

    def variance(self, g: Tensor | None, h: Tensor | None) -> Tensor:
        """The variances (B, K) from the head's input, h (B, F); there is no weight outside the head, and g is None."""
        assert g is None
        assert h is not None
        return self.of_features(own_features(h, self.features))

    def of_features(self, x: Tensor) -> Tensor:
        """The variances (B, K) from the derivatives (B, m) of any output in its own weights."""
        inside = x @ self.basis
        outside = (x - inside @ self.basis.T) * self.prior_std
        return self.factors.squared_norms(inside) + outside.square().sum(1, keepdim=True)


@dataclass(frozen=True)
class ReducedHeadPosterior:
    """The reduced covariance, as a posterior over all chosen weights; `ranks` (m,): of the first output's own."""

    factor: ReducedHeadFactor
    ranks: Tensor

    @classmethod
    def of(cls, factor: ReducedHeadFactor, jacobian: SubnetworkJacobian) -> "ReducedHeadPosterior":
        """For the weights of a Jacobian that `head_factor` takes."""
        _, own = weights_by_output(jacobian, factor.factors.outputs)
        return cls(factor, own[0].ranks)

    def variance(self, jacobian: Array) -> Array:
        """Diagonal of J Sigma J^T, in float64; jacobian (B, K, S) -> (B, K)."""
        return to_numpy(self.factor.of_features(torch.as_tensor(jacobian)[:, 0, self.ranks].double()))


def reduced_head(exact: HeadFactor, prior_precision: float, tolerance: float) -> ReducedHeadFactor | None:
    """The smallest rank of `RANKS` whose variances are off by at most the share `tolerance`, for any input.

    exact: in float64; prior_precision p: what was added to the diagonal of the curvature. None where only ranks that
    save less than half of the multiply-adds keep the tolerance.
    """
    triangles = exact.factors.triangles
    outputs, size = triangles.shape[:2]
    identity = torch.eye(size, dtype=triangles.dtype)
    inverses = torch.linalg.solve_triangular(triangles, identity.expand_as(triangles), upper=False)
    curvature = sum((inverse.T @ inverse for inverse in inverses), -outputs * prior_precision * identity)
    directions = torch.linalg.eigh(curvature)[1].flip(1)
    prior_std = torch.tensor(prior_precision, dtype=torch.float64).rsqrt()
    for rank in RANKS:
        basis = directions[:, :rank].contiguous()
        if rank >= size or 2 * basis.numel() + outputs * rank**2 > LARGEST_SHARE * exact.multiply_adds:
            return None
        bound = _error_bound(triangles, inverses, basis, prior_precision, tolerance)
        if bound <= tolerance:
            projected = torch.linalg.qr(triangles.transpose(1, 2) @ basis, mode="r")[1]
            factors = TriangularFactors.of(projected.transpose(1, 2))
            return ReducedHeadFactor(exact.features, basis, factors, prior_std, max(bound, ROUNDING))
    return None


def _error_bound(triangles: Tensor, inverses: Tensor, basis: Tensor, prior_precision: float, tolerance: float) -> float:
    """The largest relative error of a variance; as soon as it is beyond the tolerance, that of the outputs so far."""
    identity, largest = torch.eye(len(basis), dtype=basis.dtype), 0.0
    for triangle, inverse in zip(triangles, inverses, strict=True):
        seen, rows = inverse @ basis, triangle.T @ basis
        known = rows.T @ rows - torch.eye(basis.shape[1], dtype=basis.dtype) / prior_precision
        error = inverse @ inverse.T / prior_precision - identity + seen @ known @ seen.T
        largest = max(largest, float(torch.linalg.eigvalsh(error).abs().max()))
        if largest > tolerance:
            break
    return largest
