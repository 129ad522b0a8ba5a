"""Weights by leverage: the share of the full posterior's predictive variance that goes through a weight."""

import torch
from torch import Tensor

from probity.offline.selection.context import SelectionContext, choose_largest
from probity.offline.selection.covariance import full_curvature, largest_that_fits, posterior_factor
from probity.offline.selection.live_weights import eligible
from probity.offline.selection.sample import SCORE_EXAMPLES, Sample, check_count
from probity.offline.selection.strategies.sampled_leverage import default_examples, draw, sampled_leverage
from probity.offline.selection.streaming import measured_rows
from probity.offline.selection.subnetwork import Subnetwork


def leverage(
    context: SelectionContext,
    examples: int | None = SCORE_EXAMPLES,
    curvature_examples: int | None = None,
    live_only: bool = False,
) -> Subnetwork:
    """Largest mean_x sum_k (C J_k(x)^T)_d^2 / C_dd, C = (H + lambda I)^-1 the full covariance over the candidates.

    Where C fits in the memory, H sums over all training data and x over `examples` of them (None: all). Where it does
    not, or where `curvature_examples` is given, both H and x take a sample of that many examples
    (`probity.offline.selection.strategies.sampled_leverage`).
    """
    check_count(curvature_examples, "curvature_examples")
    positions, dead = eligible(context, live_only)
    if curvature_examples is None and len(positions) <= largest_that_fits(context):
        scores = exact_leverage(context, positions, Sample.of(context, examples))
        return choose_largest(context, positions, scores, dead)
    inputs = draw(context, curvature_examples or default_examples(context))
    scores = sampled_leverage(context, positions, inputs)
    return choose_largest(context, positions, scores, dead, f"leverage from the curvature of {len(inputs)} examples")


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
