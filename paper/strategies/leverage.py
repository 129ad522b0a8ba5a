"""Weights by leverage: the share of the full posterior's predictive variance that goes through a weight."""

import torch
from torch import Tensor

from paper.strategies.covariance import full_curvature, posterior_factor
from probity.offline.selection.context import SelectionContext
from probity.offline.selection.sample import Sample
from probity.offline.selection.streaming import measured_rows


def exact_leverage(context: SelectionContext, positions: Tensor, sample: Sample) -> Tensor:
    """mean_x sum_k (C J_k(x)^T)_d^2 / C_dd at `positions` (C,), float64."""
    jacobian = context.job.jacobian(positions)
    device = jacobian.indices.device
    scale_tril = posterior_factor(context, full_curvature(context, positions)).to(device)
    sums, examples, rows = torch.zeros(len(positions), dtype=torch.float64, device=device), 0, 0

    def squares(x: Tensor) -> Tensor:
        return leverage_squares(jacobian(x)[1], scale_tril)

    for inputs in sample.inputs("Leverage"):
        rows = rows or measured_rows(context.memory_bytes // 2, squares, inputs)
        examples += len(inputs)
        for chunk in torch.split(inputs, rows):
            sums += squares(chunk)
    return (sums / examples / scale_tril.square().sum(1)).cpu()


def leverage_squares(jacobian: Tensor, scale_tril: Tensor) -> Tensor:
    """sum_b sum_k (C J_bk^T)^2, (C,), of jacobian (B, K, C)."""
    j = jacobian.flatten(0, 1).double()
    return ((j @ scale_tril) @ scale_tril.T).square_().sum(0)
