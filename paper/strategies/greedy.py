"""Weights one after the other: the next one brings the predictive closest to that of the full network.

The posterior keeps every weight outside the subnetwork fixed, so with A = H_SS + lambda_S I adding weight d adds

    delta_x = (J_xd - J_xS A^-1 H_Sd)^2 / (H_dd + lambda_S - H_dS A^-1 H_Sd)

to the variance v_x of output x: a pivoted Cholesky factorisation of the precision, whose residual rows and pivots are
kept up to date. The weight taken leaves the smallest

    sum_x KL(N(f_x, full_x + noise) || N(f_x, v_x + delta_x + noise)),

where `full` is the variance under the posterior over all weights and `noise` what the outputs have anyway. With
lambda_S = lambda S / D variances may overshoot, and weights that would make them do so are passed over. A step costs
O(P (n + S)) for n outputs and P weights.
"""

import math
from collections.abc import Collection

import torch
from torch import Tensor

from probity.offline.data.likelihood import Classification
from probity.offline.data.shifts import accepted_shifts, synthetic_shifts
from probity.offline.laplace.posterior import factor, posterior_precision
from probity.offline.laplace.prior import prior_share
from probity.offline.runtime.progress import Track, silent
from probity.offline.selection.context import SelectionContext
from probity.offline.selection.sample import Sample
from probity.offline.selection.streaming import measured_rows

POOL = 4096
OUTPUTS = 256  # of training examples; as many again of shifted ones
LEAST_EXAMPLES = 8
LOGIT_NOISE = 8 / math.pi  # a logit's variance counts against this in the probit link: kappa = 1 / sqrt(1 + pi v / 8)
FLOOR = 1e-10  # a pivot below this share of its weight's precision is rounding


def closest(context: SelectionContext, curvature: Tensor, jacobian: Tensor) -> Tensor:
    """Places (S,) in a pool of weights with this curvature (P, P) and these rows (n, P), in the order chosen."""
    likelihood = context.job.likelihood
    noise = LOGIT_NOISE if isinstance(likelihood, Classification) else likelihood.noise_variance
    scale_tril, _ = factor(posterior_precision(curvature, _prior(context, len(curvature))))
    full = (jacobian @ scale_tril).square().sum(1)
    precision = posterior_precision(curvature, _prior(context, context.size))
    return match(precision, jacobian, context.size, noise, full, context.job.track)


def match(precision: Tensor, jacobian: Tensor, size: int, noise: float, full: Tensor, track: Track = silent) -> Tensor:
    """Places (size,) in the pool, in the order chosen; float64 on the CPU.

    precision (P, P): H + lambda_S I over the pool; jacobian (n, P); full (n,): the variances to come close to.
    """
    residual, pivots = jacobian.clone(), precision.diagonal().clone()
    floor, target = FLOOR * pivots, (full + noise).unsqueeze(1)
    explained = torch.zeros(len(jacobian), 1, dtype=jacobian.dtype)
    rows = torch.zeros(size, len(precision), dtype=jacobian.dtype)
    chosen: list[int] = []
    for step in track(range(size), "Greedy choice", size):
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


def _prior(context: SelectionContext, size: int) -> float:
    """lambda_S of a subnetwork of this size."""
    return context.prior_precision * prior_share(size, context.job.layout.total)


def outputs_to_match(
    context: SelectionContext, positions: Tensor, examples: int | None = None, shifts: Collection[str] | None = None
) -> Tensor:
    """Jacobian (n K, P) float64 of training examples, then of the same, shifted by one shift each in turn."""
    count = examples or max(LEAST_EXAMPLES, OUTPUTS // context.job.likelihood.outputs)
    usual = torch.cat(list(Sample.of(context, count).inputs("Sample for the greedy choice")))
    names = accepted_shifts(context.job.network, usual, context.job.config.seed, shifts)
    made = list(synthetic_shifts(usual, context.job.config.seed, names).values())
    shifted = torch.stack([made[n % len(made)][n] for n in range(len(usual))])
    jacobian, inputs = context.job.jacobian(positions), torch.cat([usual, shifted])
    rows = measured_rows(context.memory_bytes // 4, jacobian, inputs)
    joined = torch.cat([jacobian(part)[1].flatten(0, 1).double().cpu() for part in torch.split(inputs, rows)])
    return joined[torch.isfinite(joined).all(1)]  # those of training examples are: the curvature was
