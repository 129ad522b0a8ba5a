"""A posterior of low rank: the fewest eigenpairs of the curvature that keep the variances of the outputs.

With H = Q diag(e) Q^T and p = lambda_S, the posterior kept is

    Sigma_k = sum_{i <= k} q_i q_i^T / (e_i + p) + (I - Q_k Q_k^T) / p,    e_1 >= e_2 >= ...

Every direction beyond k keeps its prior variance 1 / p in place of 1 / (e_i + p), so that a row J of the Jacobian has

    J Sigma_k J^T - J Sigma J^T = sum_{i > k} (J q_i)^2 e_i / (p (e_i + p)) >= 0,

a sum over what is left out: exact in the eigenbasis, without cancellation, zero at k = S, and growing as k falls. How
it is served: `probity.service.maths.predictive.low_rank_variance`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from probity.offline.runtime.arrays import Array

MEMORY_BYTES = 128 * 2**20
WORKING_COPIES = 3  # of a chunk of rows, float64: as given, projected, in order


@dataclass(frozen=True, eq=False)
class LowRank:
    """eigenvalues (k,) descending, eigenvectors (S, k), float64; rank k; error: the largest relative error found."""

    eigenvalues: Array
    eigenvectors: Array
    rank: int
    error: float


def low_rank(
    spectrum_values: Tensor, spectrum_vectors: Tensor, prior_used: float, jacobian_sample: Tensor, tolerance: float
) -> LowRank:
    """The smallest k >= 1 whose functional variances are too large by at most the share `tolerance`.

    spectrum_values e (S,) >= 0 in any order, spectrum_vectors Q (S, S), float64: H = Q diag(e) Q^T. prior_used
    lambda_S > 0. jacobian_sample (n, S), or (n, K, S): rows of held-out data. tolerance >= 0.

    Raises `ValueError` for numbers and shapes that do not fit together.
    """
    if not 0 <= tolerance < math.inf:
        raise ValueError(
            f"tolerance: found {tolerance}, expected 0 or a positive number, such as 0.01 for one per cent"
        )
    errors = low_rank_errors(spectrum_values, spectrum_vectors, prior_used, jacobian_sample)
    rank = 1 + int((errors[1:] > tolerance).sum())
    kept = _ascending(spectrum_values).flip(0)[:rank]
    return LowRank(
        eigenvalues=spectrum_values[kept].cpu().numpy(),
        eigenvectors=spectrum_vectors[:, kept].cpu().numpy(),
        rank=rank,
        error=float(errors[rank]),
    )


def low_rank_errors(
    spectrum_values: Tensor, spectrum_vectors: Tensor, prior_used: float, jacobian_sample: Tensor
) -> Tensor:
    """(S + 1,) float64: the largest relative error of the functional variance over the rows, for every k from 0 to S.

    Arguments as in `low_rank`. Never increasing, and 0 at k = S. A row of zeros has no variance and no error. The
    sample is taken in chunks, so that memory does not grow with it.
    """
    rows = jacobian_sample.reshape(-1, jacobian_sample.shape[-1])
    _check(spectrum_values, spectrum_vectors, prior_used, rows)
    order = _ascending(spectrum_values)
    values = spectrum_values[order]
    known = 1 / (values + prior_used)
    left_out = values / prior_used * known
    errors = values.new_zeros(len(values) + 1)  # by how many eigenpairs are left out, the smallest first
    for squares in _squares(spectrum_vectors, rows):
        squares = squares[:, order]
        variance = squares @ known
        variance[variance == 0] = 1
        excess = squares.mul_(left_out).cumsum_(1)
        errors[1:] = torch.maximum(errors[1:], excess.div_(variance.unsqueeze(1)).amax(0))
    return errors.flip(0)


def _ascending(values: Tensor) -> Tensor:
    """Positions from the smallest value to the largest; ties by position."""
    return torch.argsort(values, stable=True)


def _squares(vectors: Tensor, rows: Tensor) -> Iterator[Tensor]:
    """(J q_i)^2 for some rows at a time, (r, S)."""
    count = max(1, MEMORY_BYTES // (8 * WORKING_COPIES * len(vectors)))
    for chunk in torch.split(rows, count):
        yield (chunk.to(vectors) @ vectors).square_()


def _check(values: Tensor, vectors: Tensor, prior_used: float, rows: Tensor) -> None:
    size = len(values)
    if vectors.shape != (size, size) or rows.shape[1] != size:
        raise ValueError(
            f"low rank: found {size} eigenvalues, eigenvectors of shape {tuple(vectors.shape)} and Jacobian rows of "
            f"{rows.shape[1]} weights, expected the same number of weights in all"
        )
    if not len(rows):
        raise ValueError("jacobian_sample: found no rows, expected at least 1; give more held-out data")
    if not bool(torch.isfinite(rows).all()):
        raise ValueError(
            "jacobian_sample: found NaN or infinity, expected finite derivatives; look at the held-out data"
        )
    if not 0 < prior_used < math.inf:
        raise ValueError(f"prior_used: found {prior_used}, expected a positive number; give a larger prior_precision")
    if not bool((values >= 0).all()):
        raise ValueError(f"eigenvalues: found {float(values.min())}, expected at least 0; set rounding below 0 to 0")
