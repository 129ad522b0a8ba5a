"""The time per example, measured on one small chunk."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..data.likelihood import Likelihood
from ..jacobian.jacobian import SubnetworkJacobian
from ..laplace.ggn import write_root
from ..laplace.gram import UPDATE_ROWS, Gram, update_multiplications

TIMED_ROWS = 16
TIMED_SIZE = 512
Clock = Callable[[], float]


def seconds_per_example(
    jacobian: SubnetworkJacobian,
    example: Tensor,
    likelihood: Likelihood,
    rows: int,
    clock: Clock = time.perf_counter,
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
    clock: Clock = time.perf_counter,
) -> float:
    """Seconds that the derivatives of an example take, without the update of H_S; the rest as above."""
    chunk = _chunk(example, rows)
    out = torch.empty(len(chunk) * likelihood.rows, jacobian.size, dtype=torch.float64, device=example.device)

    def derive() -> Tensor:
        write_root(jacobian, chunk, likelihood, out)
        return out

    derive()  # the first call compiles kernels
    return _seconds(derive, clock) / len(chunk)


def forward_seconds(network: nn.Module, example: Tensor, clock: Clock = time.perf_counter) -> float:
    """Seconds that a forward pass takes for an example."""
    chunk = _chunk(example, TIMED_ROWS)

    def forward() -> Tensor:
        with torch.no_grad():
            outputs: Tensor = network(chunk)
        return outputs

    forward()
    return _seconds(forward, clock) / len(chunk)


@dataclass(frozen=True)
class MatrixSeconds:
    """Seconds of work on matrices in float64: a multiply-add of a product, and a decomposition of S = 1."""

    multiply_add: float
    decomposition: float

    @classmethod
    def measured(cls, device: torch.device, clock: Clock = time.perf_counter) -> "MatrixSeconds":
        """On matrices of at most 512 columns."""
        rows = torch.eye(TIMED_SIZE, dtype=torch.float64, device=device)
        product = min(_seconds(lambda: rows @ rows, clock) for _ in range(2))
        decomposition = _seconds(lambda: torch.linalg.eigh(rows + 1)[1], clock)
        return cls(product / TIMED_SIZE**3, decomposition / TIMED_SIZE**3)


def _chunk(example: Tensor, rows: int) -> Tensor:
    return example[:1].expand(min(rows, TIMED_ROWS), *example.shape[1:]).contiguous()


def _seconds(work: Callable[[], Tensor], clock: Clock) -> float:
    start = clock()
    float(work().detach()[-1, -1])  # read a number: a GPU must have finished
    return clock() - start
