"""Data-parallel jobs under torchrun: each process takes every n-th batch, and sums are all-reduced.

Without RANK and WORLD_SIZE in the environment there is one process, and nothing here costs anything.
"""

import contextlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from .blocks import spans

T = TypeVar("T")
# The main process may choose weights for hours while the others wait. A process that dies closes its connections, and
# the others notice at once; this limit is for a machine that vanishes from the network.
TIMEOUT = timedelta(days=1)
ROWS_A_MESSAGE = 1024


class DistributedError(RuntimeError):
    """Another process of the job failed or left, so this one cannot continue."""


@dataclass(frozen=True)
class DistributedContext:
    """This process's place in the job: number `rank` of `world_size`."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process selects, writes and reports."""
        return self.rank == 0

    def shard_batches(self, batches: Iterable[T]) -> Iterator[T]:
        """Every `world_size`-th batch, starting at `rank`. All are read, so their order must be the same everywhere."""
        return islice(batches, self.rank, None, self.world_size)

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace a contiguous tensor by its sum over the processes, in place, 1,024 rows at a time."""
        if self.world_size > 1:
            with _translated_errors():
                for start, end in spans(len(tensor), ROWS_A_MESSAGE):
                    dist.all_reduce(tensor[start:end])

    def total(self, *values: float) -> list[float]:
        """The sum of each value over the processes, in float64 (whole numbers up to 2^53 exactly)."""
        tensor = torch.tensor(values, dtype=torch.float64)
        self.all_reduce(tensor)
        sums: list[float] = tensor.tolist()
        return sums

    def broadcast(self, tensor: Tensor | None, dtype: torch.dtype = torch.int64) -> Tensor:
        """The main process's tensor (n,) of `dtype`, in every process; the others pass None."""
        if self.world_size == 1:
            assert tensor is not None
            return tensor
        length = torch.tensor([0 if tensor is None else len(tensor)])
        with _translated_errors():
            dist.broadcast(length, 0)
            received = tensor.cpu().contiguous() if self.is_main and tensor is not None else None
            received = torch.empty(int(length), dtype=dtype) if received is None else received
            dist.broadcast(received, 0)
        return received

    def broadcast_json(self, value: Any) -> Any:
        """The main process's value, which JSON can hold, in every process; the others' is ignored."""
        if self.world_size == 1:
            return value
        encoded = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8) if self.is_main else None
        return json.loads(bytes(self.broadcast(encoded, torch.uint8).tolist()))

    def barrier(self) -> None:
        """Wait for every process."""
        self.total(0.0)


@contextlib.contextmanager
def process_group(device: torch.device, timeout: timedelta = TIMEOUT) -> Iterator[DistributedContext]:
    """Join the processes that torchrun started while the block runs; without torchrun there is one.

    CPU tensors use gloo, CUDA tensors NCCL. A process whose block fails leaves the group, and the others' next
    exchange raises `DistributedError`. Raises `ValueError` for an environment that torchrun did not make.
    """
    distributed = environment_context()
    if distributed.world_size == 1:
        yield distributed
        return
    # torch imports this module when it compiles or exports, and its functions then keep the group of that moment as a
    # default: the group's threads would outlive it, and could abort the process while Python shuts down.
    importlib.import_module("torch.distributed.nn.functional")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timeout)
    try:
        yield distributed
    finally:
        dist.destroy_process_group()


def environment_context() -> DistributedContext:
    """RANK and WORLD_SIZE as torchrun sets them; `ValueError` when they do not fit together."""
    rank, world_size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not rank and not world_size:
        return DistributedContext()
    if not (rank.isdigit() and world_size.isdigit()) or not int(rank) < int(world_size):
        raise ValueError(
            f"environment: found RANK={rank!r} and WORLD_SIZE={world_size!r}, expected whole numbers with RANK below "
            "WORLD_SIZE; start the job with torchrun, or unset both"
        )
    if int(world_size) > 1 and not dist.is_available():
        raise ValueError("environment: found WORLD_SIZE > 1, but this build of torch has no torch.distributed")
    return DistributedContext(int(rank), int(world_size))


def local_device(device: torch.device) -> torch.device:
    """ "cuda" without a number is this process's GPU on its machine (LOCAL_RANK); anything else stays."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise DistributedError(
            f"another process of the job failed or left; its own message says why ({reason})"
        ) from error
