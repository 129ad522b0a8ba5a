"""The form in which the posterior's covariance becomes a part of the graph that is served."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from demur.service.maths.posterior_factor import CholeskyPosterior
from demur.service.maths.predictive import column_blocks

from ..jacobian.jacobian import SubnetworkJacobian
from .block_factor import BlockFactor, factor_of, factor_size


@dataclass(frozen=True)
class WholeFactor:
    """Sigma = L L^T, `scale_tril` (S, S) = L, as a matrix that every row of derivatives is multiplied with.

    The formula is that of `demur.service.maths.predictive`, in torch: it becomes a part of the graph.
    """

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


@dataclass(frozen=True)
class TriangularFactors:
    """Lower triangular T_k (m, m) of K outputs, `panels`: (m - a, K w) each, rows from a on of columns a to a + w."""

    panels: tuple[Tensor, ...]
    outputs: int

    @classmethod
    def of(cls, triangles: Tensor) -> "TriangularFactors":
        """From (K, m, m)."""
        outputs, size = triangles.shape[:2]
        panels = [
            triangles[:, columns.start :, columns].transpose(0, 1).reshape(size - columns.start, -1).contiguous()
            for columns in column_blocks(size)
        ]
        return cls(tuple(panels), outputs)

    @property
    def size(self) -> int:
        """m."""
        return len(self.panels[0])

    def to(self, device: torch.device) -> "TriangularFactors":
        """On another device."""
        return TriangularFactors(tuple(panel.to(device) for panel in self.panels), self.outputs)

    def float(self) -> "TriangularFactors":
        """In float32, as they are served."""
        return TriangularFactors(tuple(panel.float() for panel in self.panels), self.outputs)

    def squared_norms(self, x: Tensor) -> Tensor:
        """|T_k^T x|^2 for each output, (B, m) -> (B, K)."""
        k, size = self.outputs, self.size
        products = [(x[:, size - len(p) :] @ p).reshape(-1, k, p.shape[1] // k) for p in self.panels]
        return (torch.cat(products, dim=2) if len(products) > 1 else products[0]).square().sum(2)


@dataclass(frozen=True)
class HeadFactor:
    """The posterior's covariance where all chosen weights belong to the head, the same features for every output.

    Then the entries h (m,) of the head's input (with a 1 for the bias) are the derivatives of every output, and with
    Sigma_kk = T_k T_k^T, the covariance of output k's own weights,

        variance_k = |T_k^T h|^2.

    T_k is lower triangular, so that column j of it takes no entry of h before the j-th. In panels of columns, side by
    side for all outputs, p products of matrices need about K m^2 (p + 1) / 2p multiply-adds an example, and as many
    numbers. features (m,): entries of (h, 1) that have a chosen weight for each output; None: all of them, in order.
    """

    features: Tensor | None
    factors: TriangularFactors

    @property
    def row_size(self) -> int:
        """Numbers in memory for one output of one example: its products, and a share of the head's input."""
        return 3 * self.factors.size

    def to(self, device: torch.device) -> "HeadFactor":
        """On another device."""
        return HeadFactor(None if self.features is None else self.features.to(device), self.factors.to(device))

    def float(self) -> "HeadFactor":
        """In float32, as it is served."""
        return HeadFactor(self.features, self.factors.float())

    def variance(self, g: Tensor | None, h: Tensor | None) -> Tensor:
        """The variances (B, K) from the head's input, h (B, F); there is no weight outside the head, and g is None."""
        assert g is None
        assert h is not None
        extended = functional.pad(h, (0, 1), value=1.0)
        # whole rows are gathered faster
        own = extended if self.features is None else extended.T.index_select(0, self.features).T
        return self.factors.squared_norms(own)


def head_factor(blocks: BlockFactor, in_features: int) -> HeadFactor | None:
    """The same covariance for a head with `in_features` F; None where weights lie outside the head, or where the
    outputs' own weights multiply different features."""
    outputs, width = blocks.features.shape
    if blocks.dense.numel() or not width or not bool(blocks.own.diagonal(dim1=1, dim2=2).all()):
        return None
    features = blocks.features[0]
    if not torch.equal(blocks.features, features.expand(outputs, width)):
        return None
    every = torch.equal(features, torch.arange(in_features + 1))
    return HeadFactor(None if every else features, TriangularFactors.of(blocks.own.mT))


StructuredFactor = BlockFactor | HeadFactor
"""What gives the variances from the derivatives outside the head and the head's input."""


def served_factor(
    jacobian: SubnetworkJacobian, posterior: CholeskyPosterior, outputs: int, most: int
) -> StructuredFactor | WholeFactor:
    """The form of the posterior for the graph: in blocks of at most `most` numbers together, or else as it is."""
    if factor_size(jacobian, outputs) <= most:
        return structured_factor(jacobian, posterior, outputs)
    return WholeFactor(torch.as_tensor(posterior.scale_tril))


def least_size(jacobian: SubnetworkJacobian, outputs: int) -> int:
    """How many numbers the smallest form of a posterior over all S weights holds, before it is computed."""
    return min(jacobian.size**2, factor_size(jacobian, outputs))


def structured_factor(jacobian: SubnetworkJacobian, posterior: CholeskyPosterior, outputs: int) -> StructuredFactor:
    """In blocks, or in triangles where all outputs have weights of the same features of the head, and no others."""
    blocks, head = factor_of(jacobian, posterior.scale_tril, outputs), jacobian.plan.head
    whole_head = None if head is None else head_factor(blocks, head.layer(jacobian.model).in_features)
    return blocks if whole_head is None else whole_head
