"""The full posterior over the candidates where it fits in memory: H (C, C) and the factor of (H + lambda I)^-1."""

from math import isqrt

from torch import Tensor

from probity.offline.laplace.ggn import accumulate_ggn
from probity.offline.laplace.posterior import factor, posterior_precision
from probity.offline.runtime.peak_memory import FLOAT64
from probity.offline.selection.context import SelectionContext
from probity.offline.selection.streaming import curvature_rows

# For the full covariance of the candidates: H, H + lambda I, the identity, its copies on the way to the factor, and the
# factor; half of the memory is for the rows.
COVARIANCE_MATRICES, COVARIANCE_SHARE = 8, 0.5


def largest_that_fits(context: SelectionContext) -> int:
    """How many candidates a full covariance may have."""
    return isqrt(int(COVARIANCE_SHARE * context.memory_bytes) // (COVARIANCE_MATRICES * FLOAT64))


def full_curvature(context: SelectionContext, positions: Tensor) -> Tensor:
    """H = sum_n J_n^T Lambda_n J_n over all training data at `positions`, (C, C) float64, with 1 / sigma^2."""
    jacobian = context.job.jacobian(positions)
    pairs = context.batches("Full curvature")
    rows = curvature_rows(
        context, jacobian, context.memory_bytes // 2, 8 * context.job.likelihood.outputs * jacobian.size
    )
    ggn = accumulate_ggn(jacobian, pairs, context.job.likelihood, rows=rows).ggn
    return ggn.div_(context.job.likelihood.noise_variance)


def posterior_factor(context: SelectionContext, curvature: Tensor) -> Tensor:
    """scale_tril (C, C): scale_tril scale_tril^T = (H + lambda I)^-1."""
    return factor(posterior_precision(curvature, context.prior_precision))[0]
