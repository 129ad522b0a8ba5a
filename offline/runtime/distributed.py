"""Several processes, one job: each takes every n-th batch, the sums are added up. Started with torchrun.

Without RANK and WORLD_SIZE in the environment everything here is one process's, and costs nothing.
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

from offline.runtime.blocks import spans

T = TypeVar("T")
# One process may choose weights for hours while the others wait. A process that dies closes its connections, which the
# others notice at once; this limit is for a machine that vanishes from the network.
TIMEOUT = timedelta(days=1)
ROWS_A_MESSAGE = 1024


class PeerError(RuntimeError):
    """Another process of the job failed or left, so that this one cannot go on."""


@dataclass(frozen=True)
class Shard:
    """This process's share of the data: number `rank` of `world_size`."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that selects, writes and reports."""
        return self.rank == 0

    def take(self, batches: Iterable[T]) -> Iterator[T]:
        """Every `world_size`-th batch, from number `rank` on. All batches are read: their order must be the same."""
        return islice(batches, self.rank, None, self.world_size)

    def add_up(self, tensor: Tensor) -> None:
        """Replace a contiguous tensor by its sum over the processes, in place, in messages of 1,024 rows."""
        if self.world_size > 1:
            with _peers():
                for start, end in spans(len(tensor), ROWS_A_MESSAGE):
                    dist.all_reduce(tensor[start:end])

    def total(self, *values: float) -> list[float]:
        """The sum of each value over the processes, in float64 (whole numbers up to 2^53 exactly)."""
        tensor = torch.tensor(values, dtype=torch.float64)
        self.add_up(tensor)
        found: list[float] = tensor.tolist()
        return found

    def broadcast(self, tensor: Tensor | None, dtype: torch.dtype = torch.int64) -> Tensor:
        """The main process's tensor (n,) of `dtype` in every process; the others give None."""
        if self.world_size == 1:
            assert tensor is not None
            return tensor
        length = torch.tensor([0 if tensor is None else len(tensor)])
        with _peers():
            dist.broadcast(length, 0)
            received = tensor.cpu().contiguous() if self.is_main and tensor is not None else None
            received = torch.empty(int(length), dtype=dtype) if received is None else received
            dist.broadcast(received, 0)
        return received

    def broadcast_json(self, value: Any) -> Any:
        """The main process's plain value (what JSON can hold) in every process; the others' is ignored."""
        if self.world_size == 1:
            return value
        encoded = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8) if self.is_main else None
        return json.loads(bytes(self.broadcast(encoded, torch.uint8).tolist()))

    def barrier(self) -> None:
        """Wait until every process is here."""
        self.total(0.0)


@contextlib.contextmanager
def process_group(device: torch.device, timeout: timedelta = TIMEOUT) -> Iterator[Shard]:
    """The processes that torchrun started, joined while the block runs; a single one without torchrun.

    CPU tensors go by gloo, CUDA tensors by NCCL. A process whose block fails leaves the group, and the others' next
    exchange raises `PeerError`. Raises `ValueError` for an environment that is not torchrun's.
    """
    shard = environment_shard()
    if shard.world_size == 1:
        yield shard
        return
    # torch imports it when something is compiled or exported, and then its functions keep the group of that moment as a
    # default: the group's threads would outlive it, and sometimes abort the process while Python ends.
    importlib.import_module("torch.distributed.nn.functional")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timeout)
    try:
        yield shard
    finally:
        dist.destroy_process_group()


def environment_shard() -> Shard:
    """RANK and WORLD_SIZE as torchrun sets them; `ValueError` when they do not fit together."""
    found = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not any(found):
        return Shard()
    if not all(text.isdigit() for text in found) or not int(found[0]) < int(found[1]):
        raise ValueError(
            f"environment: found RANK={found[0]!r} and WORLD_SIZE={found[1]!r}, expected whole numbers with RANK below "
            "WORLD_SIZE; start the job with torchrun, or unset both"
        )
    if int(found[1]) > 1 and not dist.is_available():
        raise ValueError("environment: found WORLD_SIZE > 1, but this build of torch has no torch.distributed")
    return Shard(int(found[0]), int(found[1]))


def local_device(device: torch.device) -> torch.device:
    """ "cuda" without a number is this process's GPU on its machine (LOCAL_RANK); anything else stays."""
    if device.type != "cuda" or device.index is not None:
        return device
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise PeerError(f"another process of the job failed or left; its own message tells why ({reason})") from error
