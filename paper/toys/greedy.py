"""Weights one after the other: the next one brings the predictive closest to that of the full network.

The posterior keeps every weight outside the subnetwork fixed, so with A = H_SS + lambda_S I adding weight d adds

    delta_x = (J_xd - J_xS A^-1 H_Sd)^2 / (H_dd + lambda_S - H_dS A^-1 H_Sd)

to the variance v_x at input x: a pivoted Cholesky factorisation of the precision, whose residual rows and pivots are
kept up to date. The weight taken leaves the smallest

    sum_x KL(N(f_x, full_x + noise) || N(f_x, v_x + delta_x + noise)),

where `full` is the variance under the posterior over all weights. With lambda_S = lambda S / D variances may overshoot,
and weights that would make them do so are passed over. A step costs O(D (n + S)) for n inputs and D weights.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from benchmarks.datasets.shifts import synthetic_shifts
from demur.offline.laplace.posterior import posterior_precision
from demur.offline.laplace.prior import prior_share
from paper.toys.predictives import PaperFitted

EXAMPLES = 256  # of the training data; as many again of shifted ones
FLOOR = 1e-10  # a pivot below this share of its weight's precision is rounding


def greedy(fitted: PaperFitted, sizes: Iterable[int]) -> dict[int, Tensor]:
    """Size -> positions: they depend on it, through lambda S / D."""
    rows = fitted.jacobian(inputs_to_match(fitted))
    full = (rows @ fitted.scale_tril).square().sum(1)
    chosen = {}
    for size in sizes:
        precision = posterior_precision(fitted.ggn, fitted.prior_precision * prior_share(size, fitted.total))
        chosen[size] = match(precision, rows, size, fitted.sigma_noise**2, full).sort().values
    return chosen


def inputs_to_match(fitted: PaperFitted) -> Tensor:
    """Training examples, drawn by the seed, then the same, shifted by one shift each in turn."""
    x = torch.as_tensor(fitted.problem.x)
    usual = x[np.random.default_rng(fitted.seed).permutation(len(x))[:EXAMPLES]]
    made = list(synthetic_shifts(usual, fitted.seed).values())
    return torch.cat([usual, torch.stack([made[n % len(made)][n] for n in range(len(usual))])])


def match(precision: Tensor, jacobian: Tensor, size: int, noise: float, full: Tensor) -> Tensor:
    """Positions (size,) in the order chosen; float64 on the CPU.

    precision (D, D): H + lambda_S I; jacobian (n, D); full (n,): the variances to come close to.
    """
    residual, pivots = jacobian.clone(), precision.diagonal().clone()
    floor, target = FLOOR * pivots, (full + noise).unsqueeze(1)
    explained = torch.zeros(len(jacobian), 1, dtype=jacobian.dtype)
    rows = torch.zeros(size, len(precision), dtype=jacobian.dtype)
    chosen: list[int] = []
    for step in range(size):
        ratio = target / (residual.square().div_(pivots).add_(explained).add_(noise))
        gains = ratio.log().sub_(ratio).sum(0)
        gains[chosen] = -torch.inf
        best = int(gains.argmax())
        row = (precision[best] - rows[:step, best] @ rows[:step]) / pivots[best].sqrt()
        column = residual[:, best] / pivots[best].sqrt()
        rows[step] = row
        explained += column.square().unsqueeze(1)
        residual.addr_(column, row, alpha=-1)
        pivots = torch.maximum(pivots - row.square(), floor)
        chosen.append(best)
    return torch.tensor(chosen)
