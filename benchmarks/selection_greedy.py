"""Greedy subnetworks: the next weight is the one that adds most to the predictive variance of those chosen so far.

The paper's posterior keeps every weight outside the subnetwork fixed, so with A = H_SS + lambda I adding weight d adds

    delta_x = (J_xd - J_xS A^-1 H_Sd)^2 / (H_dd + lambda - H_dS A^-1 H_Sd)

to the variance of output x: a pivoted Cholesky factorisation of the precision, whose residual rows and pivots are kept
up to date, with O(P (n + s)) work for step s over a pool of P weights and n outputs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Gain = Callable[[Tensor, Tensor], Tensor]
FLOOR = 1e-10  # a pivot below this share of its weight's prior is rounding


def greedy_variance(precision: Tensor, jacobian: Tensor, size: int, noise: Tensor | float) -> Tensor:
    """Positions (size,) in the pool, in the order chosen, by the largest sum_x delta_x / (v_x + noise).

    precision (P, P): H + lambda I over the pool; jacobian (n, P): outputs to be explained; noise: the variance that
    the outputs have anyway, a number or (n,). Dividing by v_x + noise makes it the steepest ascent of
    sum_x log(v_x + noise): outputs that are explained already count less.
    """
    return _greedy(precision, jacobian, size, lambda v, delta: (1 / (v + noise)) @ delta)


def greedy_match(precision: Tensor, jacobian: Tensor, size: int, noise: float, full: Tensor) -> Tensor:
    """As `greedy_variance`, but each step takes the weight that leaves the smallest divergence from the full network.

    full (n,): the full network's predictive variances without noise. The measure is
    sum_x KL(N(f, full_x + noise) || N(f, v_x + noise)); where lambda is smaller than the full network's (scaled by
    S / D), v_x can overshoot, and a weight that makes it do so is passed over.
    """
    target = (full + noise).unsqueeze(1)

    def gain(v: Tensor, delta: Tensor) -> Tensor:
        ratio = target / (v.unsqueeze(1) + delta + noise)
        return (1 + ratio.log() - ratio).sum(0)

    return _greedy(precision, jacobian, size, gain)


def _greedy(precision: Tensor, jacobian: Tensor, size: int, gain: Gain) -> Tensor:
    """gain(v (n,), delta (n, P)) -> (P,): what each weight is worth now."""
    residual, pivots = jacobian.clone(), precision.diagonal().clone()
    floor = FLOOR * pivots
    explained = torch.zeros(len(jacobian), dtype=jacobian.dtype)
    factor = torch.zeros(size, len(precision), dtype=jacobian.dtype)
    chosen: list[int] = []
    for step in range(size):
        gains = gain(explained, residual.square() / pivots)
        gains[chosen] = -torch.inf
        best = int(gains.argmax())
        row = (precision[best] - factor[:step, best] @ factor[:step]) / pivots[best].sqrt()
        column = residual[:, best] / pivots[best].sqrt()
        factor[step] = row
        explained += column.square()
        residual.addr_(column, row, alpha=-1)
        pivots = torch.maximum(pivots - row.square(), floor)
        chosen.append(best)
    return torch.tensor(chosen)
