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

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..jacobian.jacobian import SubnetworkJacobian
from ..runtime.arrays import Array, to_numpy
from ..runtime.peak_memory import FLOAT64
from .block_factor import weights_by_output
from .head_factor import HeadFactor, TriangularFactors, own_features

RANKS = tuple(step << doubling for doubling in range(4, 14) for step in (2, 3))  # 32, 48, 64, 96, 128, ...
LARGEST_SHARE = 0.5  # of the multiply-adds without the reduction
POWER_STEPS = 8
MATRICES = 6  # beside those of every output: the curvature, its eigenvectors, and the work space of both
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


def reduction_bytes(exact: HeadFactor) -> int:
    """What `reduced_head` takes in memory beside `exact`, at most: the factors, their inverses, the products of these
    with a basis, and a few single matrices with LAPACK's work space."""
    outputs, size = exact.factors.outputs, exact.factors.size
    return FLOAT64 * (3 * outputs + MATRICES) * size**2


def reduced_head(exact: HeadFactor, prior_precision: float, tolerance: float) -> ReducedHeadFactor | None:
    """The smallest rank of `RANKS` whose variances are off by at most the share `tolerance`, for any input.

    exact: in float64; prior_precision p: what was added to the diagonal of the curvature. None where only ranks that
    save less than half of the multiply-adds keep the tolerance.
    """
    triangles = exact.factors.triangles
    outputs, size = triangles.shape[:2]
    identity = torch.eye(size, dtype=triangles.dtype)
    inverses = torch.empty_like(triangles)
    for inverse, triangle in zip(inverses, triangles, strict=True):
        inverse.copy_(torch.linalg.solve_triangular(triangle, identity, upper=False))
    curvature = -outputs * prior_precision * identity
    for inverse in inverses:
        curvature.addmm_(inverse.T, inverse)
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


@dataclass(frozen=True)
class _RelativeError:
    """E = T^-1 (B M B^T + (I - B B^T) / p - T T^T) T^-T of one output, without forming it; M = B^T T T^T B.

    T^-1 (m, m), T^-1 B (m, r), M - I / p (r, r).
    """

    inverse: Tensor
    seen: Tensor
    known: Tensor
    prior_precision: float

    def at_least(self) -> float:
        """A lower bound of its norm, by a few steps of the power method."""
        x = torch.ones(len(self.inverse), dtype=self.inverse.dtype)
        for _ in range(POWER_STEPS):
            x = x / x.norm()
            x = (
                self.inverse @ (self.inverse.T @ x) / self.prior_precision
                - x
                + self.seen @ (self.known @ (self.seen.T @ x))
            )
        return float(x.norm())

    def norm(self) -> float:
        """The largest absolute eigenvalue."""
        error = self.inverse @ self.inverse.T / self.prior_precision + self.seen @ self.known @ self.seen.T
        error.diagonal().sub_(1)
        return float(torch.linalg.eigvalsh(error).abs().max())


def _error_bound(triangles: Tensor, inverses: Tensor, basis: Tensor, prior_precision: float, tolerance: float) -> float:
    """The largest relative error of a variance; where that is beyond the tolerance, infinity.

    A rank that is too small shows in products with vectors; the norms take m^3 multiply-adds an output.
    """
    prior = torch.eye(basis.shape[1], dtype=basis.dtype) / prior_precision
    errors = []
    for triangle, inverse in zip(triangles, inverses, strict=True):
        rows = triangle.T @ basis
        errors.append(_RelativeError(inverse, inverse @ basis, rows.T @ rows - prior, prior_precision))
        if errors[-1].at_least() > tolerance:
            return math.inf
    largest = 0.0
    for error in errors:
        largest = max(largest, error.norm())
        if largest > tolerance:
            return math.inf
    return largest
