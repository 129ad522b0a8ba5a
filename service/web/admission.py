"""How much may be under way at once: bytes of request bodies, what is decoded from them, and answers until sent."""

import contextlib
from collections.abc import Iterator


class TooBusy(Exception):
    """The requests under way fill the room for them."""


class ByteBudget:
    """Room for `limit` bytes of bodies. One body always fits an empty budget, whatever its size."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    @contextlib.contextmanager
    def lease(self) -> Iterator["Lease"]:
        """What the block takes is given back when it ends."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            self.used -= lease.held


class Lease:
    """One request's part of the budget."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget, self.held = budget, 0

    def grow(self, size: int) -> None:
        """Take room for `size` bytes more; raises `TooBusy`."""
        others = self._budget.used - self.held
        if others and self._budget.used + size > self._budget.limit:
            raise TooBusy(f"other requests hold {others} bytes, expected at most {self._budget.limit}")
        self._budget.used += size
        self.held += size
