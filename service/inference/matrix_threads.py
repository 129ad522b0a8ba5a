"""Limit the threads of NumPy's matrix products. BLAS has one thread count for the whole process."""

import contextlib
import functools
import threading
from collections.abc import Iterator

import threadpoolctl


class MatrixThreads:
    """The process's BLAS libraries. Use the instance of `matrix_threads()`: two would undo each other's settings."""

    def __init__(self) -> None:
        libraries = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
        self._libraries = [(library, library.num_threads) for library in libraries]
        self._lock = threading.Lock()
        self._limits: list[int] = []  # of the `at_most` blocks that run now
        self._set: int | None = None

    def keep_to(self, threads: int) -> None:
        """Use `threads` threads from now on, and fewer inside an `at_most` block that asks for fewer."""
        with self._lock:
            self._libraries = [(library, threads) for library, _ in self._libraries]
            self._apply(min(self._limits, default=None))

    @contextlib.contextmanager
    def at_most(self, threads: int | None) -> Iterator[None]:
        """Use at most `threads` threads inside the block (None: no limit). Where several threads are in such blocks,
        the smallest limit holds for all."""
        if threads is None:
            yield
            return
        with self._lock:
            self._limits.append(threads)
            self._change()
        try:
            yield
        finally:
            with self._lock:
                self._limits.remove(threads)
                self._change()

    def _change(self) -> None:
        limit = min(self._limits, default=None)
        if limit != self._set:
            self._apply(limit)

    def _apply(self, limit: int | None) -> None:
        self._set = limit
        for library, usual in self._libraries:
            wanted = usual if limit is None else min(usual, limit)
            if library.get_num_threads() != wanted:
                library.set_num_threads(wanted)


@functools.cache
def matrix_threads() -> MatrixThreads:
    """The instance of this process; import NumPy first."""
    return MatrixThreads()
