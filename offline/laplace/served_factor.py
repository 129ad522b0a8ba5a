"""The form in which the posterior's covariance becomes a part of the graph that is served."""

import torch

from demur.service.maths.posterior_factor import CholeskyPosterior

from ..jacobian.jacobian import SubnetworkJacobian
from .block_factor import BlockFactor, factor_of, factor_size
from .head_factor import HeadFactor, head_factor
from .whole_factor import WholeFactor

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
