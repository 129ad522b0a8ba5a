"""A budget in bytes for everything under way: request bodies, decoded inputs, and responses until they are sent."""

import contextlib
from collections.abc import Iterator


class TooBusy(Exception):
    """The requests under way leave no room for another."""


class ByteBudget:
    """Room for `limit` bytes. An empty budget takes one body of any size."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    @contextlib.contextmanager
    def lease(self) -> Iterator["Lease"]:
        """Release everything that the block reserved when it ends."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            self.used -= lease.held


class Lease:
    """One request's share of the budget."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget, self.held = budget, 0

    def grow(self, size: int) -> None:
        """Reserve `size` more bytes; raises `TooBusy`."""
        others = self._budget.used - self.held
        if others and self._budget.used + size > self._budget.limit:
            raise TooBusy(f"other requests hold {others} bytes, expected at most {self._budget.limit}")
        self._budget.used += size
        self.held += size
