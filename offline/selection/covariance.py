"""The full posterior over the candidates, where it fits: H (C, C) and the factor of (H + lambda I)^-1."""

from math import isqrt

import torch
from torch import Tensor

from offline.data.likelihood import check_targets
from offline.laplace.ggn import accumulate_ggn
from offline.laplace.posterior import factor, posterior_precision
from offline.runtime.peak_memory import FLOAT64
from offline.selection.context import SelectionContext
from offline.selection.streaming import curvature_rows

# For the full covariance of the candidates: H, H + lambda I, the identity, its copies on the way to the factor, and the
# factor; half of the memory is for the rows.
COVARIANCE_MATRICES, COVARIANCE_SHARE = 8, 0.5


def largest_that_fits(context: SelectionContext) -> int:
    """How many candidates a full covariance may have."""
    return isqrt(int(COVARIANCE_SHARE * context.memory_bytes) // (COVARIANCE_MATRICES * FLOAT64))


def check_fits(context: SelectionContext, count: int) -> None:
    """`ValueError` where the covariance of `count` weights does not fit in the memory."""
    most = largest_that_fits(context)
    if count > most:
        raise ValueError(
            f"selection='wasserstein-exact': found {count} candidates, expected at most {most}: their covariance needs "
            f"{covariance_bytes(count)} bytes of memory, {context.memory_bytes} may be taken; give "
            "a larger memory_budget, restrict the choice to some modules, or choose selection='wasserstein-laplace'"
        )


def full_curvature(context: SelectionContext, positions: Tensor) -> Tensor:
    """H = sum_n J_n^T Lambda_n J_n over all training data at `positions`, (C, C) float64, with 1 / sigma^2."""
    jacobian = context.job.jacobian(positions)
    pairs = context.job.track(context.job.pass_over_training(), "Full curvature")
    rows = curvature_rows(context, jacobian, context.memory_bytes // 2, 8 * context.job.outputs * jacobian.size)
    ggn = accumulate_ggn(jacobian, pairs, context.job.outputs, context.job.config.likelihood, rows=rows).ggn
    return ggn.div_(noise_variance(context))


def posterior_factor(context: SelectionContext, curvature: Tensor) -> Tensor:
    """scale_tril (C, C): scale_tril scale_tril^T = (H + lambda I)^-1."""
    return factor(posterior_precision(curvature, context.prior_precision))[0]


def noise_variance(context: SelectionContext) -> float:
    """sigma^2: 1 for classification; for regression the given one, or the mean squared residual on the training data.

    Raises `ValueError` where the network fits its training data exactly.
    """
    if context.job.config.likelihood == "classification":
        return 1.0
    if context.job.sigma_noise is not None:
        return context.job.sigma_noise**2
    total, count = 0.0, 0
    for inputs, raw_targets in context.job.pass_over_training():
        targets = check_targets(raw_targets, context.job.outputs, len(inputs), context.job.config.likelihood)
        with torch.no_grad():
            total += float((targets.double() - context.job.network(inputs).double()).square().sum())
        count += targets.numel()
    if not total:
        raise ValueError(
            "sigma_noise: the model fits its training data exactly, so its noise cannot be estimated; give a number"
        )
    return total / count


def covariance_bytes(count: int) -> int:
    """What the full covariance of so many weights takes while they are selected by it."""
    return int(COVARIANCE_MATRICES * FLOAT64 * count**2 / COVARIANCE_SHARE)
