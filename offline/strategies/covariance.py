"""The full posterior over the candidates, where it fits: H (C, C) and the factor of (H + lambda I)^-1."""

from math import isqrt

import torch
from torch import Tensor

from offline.curvature import accumulate_ggn
from offline.likelihood import check_targets
from offline.posterior import factor, posterior_precision
from offline.stages import COVARIANCE_MATRICES, COVARIANCE_SHARE, FLOAT64, covariance_bytes
from offline.strategies.context import SelectionContext
from offline.strategies.streaming import curvature_rows


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
    jacobian = context.jacobian(positions)
    pairs = context.track(context.batches(), "Full curvature")
    rows = curvature_rows(context, jacobian, context.memory_bytes // 2, 8 * context.outputs * jacobian.size)
    ggn = accumulate_ggn(jacobian, pairs, context.outputs, context.likelihood, rows=rows).ggn
    return ggn.div_(noise_variance(context))


def posterior_factor(context: SelectionContext, curvature: Tensor) -> Tensor:
    """scale_tril (C, C): scale_tril scale_tril^T = (H + lambda I)^-1."""
    return factor(posterior_precision(curvature, context.prior_precision))[0]


def noise_variance(context: SelectionContext) -> float:
    """sigma^2: 1 for classification; for regression the given one, or the mean squared residual on the training data.

    Raises `ValueError` where the network fits its training data exactly.
    """
    if context.likelihood == "classification":
        return 1.0
    if context.sigma_noise is not None:
        return context.sigma_noise**2
    total, count = 0.0, 0
    for inputs, raw_targets in context.batches():
        targets = check_targets(raw_targets, context.outputs, len(inputs), context.likelihood)
        with torch.no_grad():
            total += float((targets.double() - context.network(inputs).double()).square().sum())
        count += targets.numel()
    if not total:
        raise ValueError(
            "sigma_noise: the model fits its training data exactly, so its noise cannot be estimated; give a number"
        )
    return total / count
