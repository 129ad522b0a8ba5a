"""Calls that wait for their messages: for how long, and which of them give way where there are too many."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ..http.problems import ProblemError

QUICK_SECONDS = 1.0  # a message that is there so soon gives way to no other
MOST_WAITING = 1024


def shutting_down() -> ProblemError:
    """How calls end then."""
    return ProblemError(503, "draining", "The service is shutting down.")


class Waits:
    """most: so many may wait for more than `QUICK_SECONDS` each."""

    def __init__(self, most: int) -> None:
        self._most = max(1, min(MOST_WAITING, most))
        self._waiting: dict[asyncio.Timeout, float] = {}  # since when, the oldest first
        self.stopping = False

    def stop(self) -> None:
        """End them all."""
        self.stopping = True
        for waiting in self._waiting:
            _end(waiting)

    @contextlib.asynccontextmanager
    async def held(self, seconds: float) -> AsyncIterator[None]:
        """A block in which a client lets the service wait; raises `ProblemError` (408) where it does so for longer, 429
        where it gives way, and 503 at the end."""
        self._make_room()
        waiting = asyncio.timeout(seconds)
        try:
            async with waiting:
                self._waiting[waiting] = asyncio.get_running_loop().time()
                yield
        except TimeoutError:
            if self.stopping:
                raise shutting_down() from None
            if waiting not in self._waiting:
                detail = "Others wait for their messages too, this one for the longest time."
                raise ProblemError(429, "busy", detail) from None
            detail = f"The message did not arrive within {seconds:g} seconds."
            raise ProblemError(408, "body_timeout", detail) from None
        finally:
            self._waiting.pop(waiting, None)

    def _make_room(self) -> None:
        long = asyncio.get_running_loop().time() - QUICK_SECONDS
        while len(self._waiting) >= self._most:
            oldest, began = next(iter(self._waiting.items()))
            if began > long and len(self._waiting) < MOST_WAITING:
                return
            del self._waiting[oldest]
            _end(oldest)


def _end(waiting: asyncio.Timeout) -> None:
    if not waiting.expired():  # otherwise it ends anyhow
        waiting.reschedule(0)
