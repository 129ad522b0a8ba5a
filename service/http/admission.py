"""A budget in bytes for everything under way: request bodies, decoded inputs, and responses until they are sent."""

from types import TracebackType
from typing import Self

from starlette.requests import HTTPConnection

LEASE = "demur.lease"


class TooBusy(Exception):
    """The requests under way leave no room for another."""


class ByteBudget:
    """Room for `limit` bytes. An empty budget takes one body of any size."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0

    def lease(self) -> "Lease":
        """A share of the budget, for a `with` block."""
        return Lease(self)


class Lease:
    """One request's share of the budget; all that a `with` block reserves is released when the block ends."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget, self.held = budget, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._budget.used -= self.held
        self.held = 0

    def grow(self, size: int) -> None:
        """Reserve `size` more bytes; raises `TooBusy`."""
        others = self._budget.used - self.held
        if others and self._budget.used + size > self._budget.limit:
            raise TooBusy(f"other requests hold {others} bytes, expected at most {self._budget.limit}")
        self._budget.used += size
        self.held += size


def lease_of(request: HTTPConnection) -> Lease:
    """The request's lease on the byte budget, until its response is sent."""
    lease: Lease = request.scope[LEASE]
    return lease
