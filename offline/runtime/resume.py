"""A pass over the data that can be resumed, and the fingerprint of a job."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from torch import Tensor, nn

from .checkpoint import Checkpoint, CheckpointError, update_digest

Pair = tuple[Tensor, Tensor]
START = hashlib.sha256().hexdigest()


class ResumablePass:
    """The position in a pass over the data: batches done, and the rolling sha256 of their inputs and targets.

    digest_n = sha256(digest_{n-1}, inputs_n, targets_n): on resuming, the batches done are read and hashed again, and
    must give the digest that was saved; none of them is computed again.
    """

    def __init__(self, checkpoint: Checkpoint, stage: str, identity: Mapping[str, str]) -> None:
        self._checkpoint, self._stage, self._identity = checkpoint, stage, dict(identity)
        self.batches, self.digest = 0, START

    def resume(self, batches: Iterator[Pair], into: Tensor) -> dict[str, Any]:
        """Skip the batches that are done and put their sum `into` the tensor; the saved sums, empty at the start.

        Raises `CheckpointError` for data that differ from those consumed before the interruption.
        """
        saved = self._checkpoint.load(self._stage, self._identity, into)
        if saved is None:
            return {}
        state = saved[1]
        while self.batches < state["batches"]:
            self.passed(*self._next(batches, state["batches"]))
        if self.digest != state["digest"]:
            raise self._changed(f"found other examples in the first {self.batches} batches")
        sums: dict[str, Any] = state["sums"]
        return sums

    def passed(self, inputs: Tensor, targets: Tensor) -> None:
        """Count a batch as done."""
        digest = hashlib.sha256(self.digest.encode())
        update_digest(digest, inputs)
        update_digest(digest, targets)
        self.digest, self.batches = digest.hexdigest(), self.batches + 1

    def save_if_due(self, contents: Callable[[], tuple[Tensor, Mapping[str, Any]]]) -> None:
        """Save (sum, sums) when it is due; `contents` is called only then."""
        if self._checkpoint.due():
            tensor, sums = contents()
            state = {"batches": self.batches, "digest": self.digest, "sums": dict(sums)}
            self._checkpoint.save(self._stage, tensor, state, self._identity)

    def _next(self, batches: Iterator[Pair], expected: int) -> Pair:
        for pair in batches:
            return pair
        raise self._changed(f"found {self.batches} batches, expected at least {expected}")

    def _changed(self, found: str) -> CheckpointError:
        return CheckpointError(
            f"checkpoint: the data are not those of the interrupted job, {found}; a loader must give the same examples "
            f"in the same order each time (no shuffling, no random augmentation). Fix the order, or remove the folder "
            f"{self._checkpoint.folder} to start again, as --restart does"
        )


def job_fingerprint(network: nn.Module, config: str, world_size: int = 1) -> dict[str, str]:
    """What must be equal for saved work to count: weights and buffers, configuration (JSON), version, processes."""
    return {
        "version of demur": version("demur"),
        "sha256 of the weights": tensors_digest(network.state_dict()),
        "configuration": config,
        "number of processes": str(world_size),
    }


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """sha256 over names, dtypes, shapes and bytes, in order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + b"\0")
        update_digest(digest, tensors[name])
    return digest.hexdigest()
