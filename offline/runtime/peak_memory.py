"""Measured peak memory: the bytes of all tensors alive at once, and how many examples may be taken at once by it."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FLOAT64 = 8
MAX_ROWS = 512  # more at once gain no speed
# On what is measured. glibc's allocator keeps what was freed in pieces that fit nothing later: over many chunks the
# process was seen to grow to 1.7 times the tensors alive.
MARGIN = 1.75


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context manager that counts the storage of every new tensor until it is freed.

    `live` and `peak` in bytes, on any device. Tensors that existed before are not counted. While a convolution runs,
    as much again as its tensors take is added: the libraries behind it reorder them into layouts of their own.
    Not seen: other scratch space inside an operation (LAPACK's work arrays).
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live: int = 0
        self.peak: int = 0
        self._seen: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = _tensors((args, kwargs))
        for tensor in given:
            self._note(tensor.untyped_storage(), 0)
        result = func(*args, **(kwargs or {}))
        made = _tensors(result)
        for tensor in made:
            storage = tensor.untyped_storage()
            self._note(storage, storage.nbytes())
        scratch = sum(t.numel() * t.element_size() for t in given + made) if "convolution" in str(func) else 0
        self.peak = max(self.peak, self.live + scratch)
        return result

    def _note(self, storage: torch.UntypedStorage, size: int) -> None:
        """Count a new storage as `size` bytes until it is freed."""
        key = storage._cdata  # noqa: SLF001  the storage itself, whichever object stands for it
        if key in self._seen:
            return

        def leave(_: object) -> None:
            self.live -= size
            del self._seen[key]

        self._seen[key] = weakref.ref(storage, leave)
        self.live += size


def peak_bytes(work: Callable[[], object]) -> int:
    """The largest number of bytes of tensors made by `work` that were alive at one time."""
    ledger = Ledger()
    with ledger:
        work()
    return ledger.peak


def measured_rows(memory: int, work: Callable[[Tensor], object], x: Tensor) -> int:
    """How many examples fit in `memory` bytes at once, by what `work` takes for one of `x`; at least one."""
    one = peak_bytes(lambda: work(x[:1]))
    return min(MAX_ROWS, rows_within(memory, int(MARGIN * one)))


def rows_within(memory_bytes: int, bytes_per_row: int) -> int:
    """How many examples to take at once so that their Jacobians stay within a memory budget, at least 1."""
    return max(1, memory_bytes // max(1, bytes_per_row))


def _tensors(tree: object) -> list[Tensor]:
    """Those with a storage: a sparse one has its own tensors for indices and values."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.layout is torch.strided]
