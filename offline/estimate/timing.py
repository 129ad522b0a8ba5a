"""The time per example, measured on one small chunk."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from offline.data.likelihood import Likelihood
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.laplace.ggn import write_root
from offline.laplace.gram import UPDATE_ROWS, Gram, update_multiplications

TIMED_ROWS = 16
TIMED_SIZE = 512


def seconds_per_example(
    jacobian: SubnetworkJacobian,
    example: Tensor,
    likelihood: Likelihood,
    rows: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds that `accumulate_ggn` takes for an example, in chunks of `rows`; example (>= 1, *input_shape).

    The Jacobian is timed on at most 16 copies of the example, the update of H_S on at most 512 of its columns, its cost
    being S^2 / 2 multiply-adds a row.
    """
    gram = Gram(min(TIMED_SIZE, jacobian.size), UPDATE_ROWS, example.device)
    gram.reserve(UPDATE_ROWS).zero_()
    share = update_multiplications(jacobian.size) / update_multiplications(len(gram.matrix))
    update = _seconds(gram.sum_so_far, clock) * share * likelihood.rows / UPDATE_ROWS
    return derivation_seconds(jacobian, example, likelihood, rows, clock) + update


def derivation_seconds(
    jacobian: SubnetworkJacobian,
    example: Tensor,
    likelihood: Likelihood,
    rows: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds that the derivatives of an example take, without the update of H_S; the rest as above."""
    count = min(rows, TIMED_ROWS)
    chunk = example[:1].expand(count, *example.shape[1:]).contiguous()
    out = torch.empty(count * likelihood.rows, jacobian.size, dtype=torch.float64, device=example.device)

    def derive() -> Tensor:
        write_root(jacobian, chunk, likelihood, out)
        return out

    derive()  # the first call compiles kernels
    return _seconds(derive, clock) / count


def _seconds(work: Callable[[], Tensor], clock: Callable[[], float]) -> float:
    start = clock()
    float(work()[-1, -1])  # read a number: a GPU must have finished
    return clock() - start
