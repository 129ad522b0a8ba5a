"""The posterior's covariance in blocks, where the derivative of an output touches few of the head's weights.

With Sigma = L L^T and v_k = L^T J_k^T the variance of output k is |v_k|^2. Only the rows of L that belong to output k's
own head weights (L_k, entries h_k of the head's input) and to the weights outside the head (L_0, derivatives g_k) take
part: v_k = L_0^T g_k + L_k^T h_k. With L_0^T = Q R the part inside the span of Q is R g_k + Q^T L_k^T h_k, and the rest
E_k h_k with E_k = (I - Q Q^T) L_k^T has the norm of T_k h_k, E_k = P_k T_k:

    variance_k = |R g_k + (L_k Q)^T h_k|^2 + |T_k h_k|^2,

a sum of squares again. Per example that is K n^2 + n m K + m^2 K multiply-adds for n weights outside the head and m
weights of it an output, in place of K S^2, S = n + m K.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ..jacobian.jacobian import SubnetworkJacobian
from ..runtime.arrays import Array


@dataclass(frozen=True)
class OwnWeights:
    """The head weights of one output: `ranks` (m,) among the S chosen ones, `features` (m,) of the head's input that
    they multiply; the number F stands for the constant 1 that a bias multiplies."""

    ranks: Tensor
    features: Tensor


@dataclass(frozen=True)
class BlockFactor:
    """`dense` (n, n') = R^T, or the rows of L without a head; `features` (K, m), `cross` (K, n, m) = (L_k Q)^T, `own`
    (K, m, m) = T_k. Outputs with fewer than m weights are padded with zeros."""

    dense: Tensor
    features: Tensor
    cross: Tensor
    own: Tensor

    @property
    def row_size(self) -> int:
        """Numbers in memory for one output of one example: derivatives, entries of the head's input, and products."""
        n, width = self.dense.shape[1], self.features.shape[1]
        return max(1, 2 * self.dense.shape[0] + n + 2 * width)

    def to(self, device: torch.device) -> "BlockFactor":
        """On another device."""
        return BlockFactor(*(matrix.to(device) for matrix in (self.dense, self.features, self.cross, self.own)))

    def float(self) -> "BlockFactor":
        """In float32, as it is served."""
        return BlockFactor(self.dense.float(), self.features, self.cross.float(), self.own.float())

    def variance(self, g: Tensor | None, h: Tensor | None) -> Tensor:
        """The variances (B, K) from the derivatives outside the head, g (B, K, n), and the head's input, h (B, F).

        Either may be None where no weight needs it. Written with products of matrices, as it becomes a part of the
        graph that is served.
        """
        inside = None if g is None else (g @ self.dense).permute(1, 2, 0)
        if h is None or not self.own.numel():
            assert inside is not None
            return inside.square().sum(1).T
        extended = functional.pad(h, (0, 1), value=1.0)
        entries = functional.embedding(self.features, extended.T)  # whole rows are gathered faster than columns
        variance = (self.own @ entries).square().sum(1)
        if inside is not None:
            variance = variance + (inside + self.cross @ entries).square().sum(1)
        return variance.T


def factor_size(jacobian: SubnetworkJacobian, outputs: int) -> int:
    """Numbers in the blocks, n^2 + K m n + K m^2, before they are computed."""
    in_head = jacobian.plan.in_head
    belongs = torch.cat([jacobian.indices[:0], *(item.outputs for item in in_head)])
    most = int(torch.bincount(belongs, minlength=outputs).max())
    outside = jacobian.size - len(belongs)
    return outside**2 + outputs * most * (outside + most)


def factor_of(jacobian: SubnetworkJacobian, scale_tril: Array, outputs: int) -> BlockFactor:
    """The blocks for the routes of a Jacobian; `scale_tril` (S, S) = L, in the order of its indices."""
    return block_factor(scale_tril, *weights_by_output(jacobian, outputs))


def weights_by_output(jacobian: SubnetworkJacobian, outputs: int) -> tuple[Tensor, list[OwnWeights]]:
    """The ranks (n,) of the weights outside the head, and the head weights of each output."""
    plan, ranks = jacobian.plan, jacobian.ranks()
    head = None if plan.head is None else plan.head.layer(jacobian.model)
    empty = jacobian.indices[:0]
    outside = torch.cat([empty, *(ranks[name] for name in plan.outside_head)])
    belongs = torch.cat([empty, *(item.outputs for item in plan.in_head)])
    multiplied = torch.cat([empty, *(item.features_or(head.in_features) for item in plan.in_head if head)])
    places = torch.cat([empty, *(ranks[item.parameter.name] for item in plan.in_head)])
    own = [OwnWeights(places[belongs == k].cpu(), multiplied[belongs == k].cpu()) for k in range(outputs)]
    return outside.cpu(), own


def block_factor(scale_tril: Array, outside: Tensor, own: Sequence[OwnWeights]) -> BlockFactor:
    """The blocks of Sigma = L L^T, `scale_tril` (S, S) = L, in float64; without a head, the rows of L as they are.

    outside (n,): the ranks of the weights outside the head, in the order of their derivatives; own: for each output its
    head weights, none where there is no head.
    """
    n, width = len(outside), max(len(one.ranks) for one in own)
    features = torch.zeros(len(own), width, dtype=torch.int64)
    cross = torch.zeros(len(own), n, width, dtype=torch.float64)
    blocks = torch.zeros(len(own), width, width, dtype=torch.float64)
    if not width:
        return BlockFactor(torch.as_tensor(scale_tril[outside.numpy()]), features, cross, blocks)
    q, r = torch.linalg.qr(_rows(scale_tril, outside).T)
    for k, one in enumerate(own):
        count, rows = len(one.ranks), _rows(scale_tril, one.ranks)
        features[k, :count] = one.features
        cross[k, :, :count] = (rows @ q).T
        blocks[k, :count, :count] = torch.linalg.qr(rows.T - q @ cross[k, :, :count], mode="r")[1]
    return BlockFactor(r.T.contiguous(), features, cross, blocks)


def _rows(matrix: Array, ranks: Tensor) -> Tensor:
    return torch.as_tensor(np.asarray(matrix[ranks.numpy()], np.float64))
