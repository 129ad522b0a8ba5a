"""A budget in bytes for everything under way: request bodies, decoded inputs, and responses until they are sent."""

import contextlib
from collections.abc import Iterator
from typing import Self

from starlette.requests import HTTPConnection

from .problems import ProblemError

LEASE = "demur.lease"


class ByteBudget:
    """Room for `limit` bytes. An empty budget takes one body of any size."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used, self.waiting = limit, 0, 0

    def lease(self) -> "Lease":
        """A share of the budget, for a `with` block."""
        return Lease(self)


class Lease:
    """One request's share of the budget; all that a `with` block reserves is released when the block ends."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget, self.held = budget, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give back all that is held."""
        self._budget.used -= self.held
        self.held = 0

    @contextlib.contextmanager
    def waiting(self) -> Iterator[bool]:
        """While the request waits for room elsewhere: whether it keeps what it holds. All that wait keep half of the
        budget, which leaves the other half to those that need not wait; who comes then gives back what it holds."""
        if not (stays := self._budget.waiting + self.held <= self._budget.limit // 2):
            self.release()
        self._budget.waiting += self.held
        try:
            yield stays
        finally:
            self._budget.waiting -= self.held

    def grow(self, size: int) -> None:
        """Reserve `size` more bytes; raises `ProblemError` (429)."""
        others = self._budget.used - self.held
        if others and self._budget.used + size > self._budget.limit:
            detail = f"Other requests hold {others} bytes, expected at most {self._budget.limit}; try again later."
            raise ProblemError(429, "queue_full", detail, headers={"Retry-After": "1"})
        self._budget.used += size
        self.held += size


def lease_of(request: HTTPConnection) -> Lease:
    """The request's lease on the byte budget, until its response is sent."""
    lease: Lease = request.scope[LEASE]
    return lease
