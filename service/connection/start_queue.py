"""A limit on how many requests start in one iteration of the event loop, so that a crowd does not delay health checks.

A request that needs nothing but the event loop takes up to some milliseconds there. Hundreds of connections with a
request each would make a single iteration last for a second, and a health check takes several iterations.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

# Fewer requests start after an iteration that took longer than this: a scrape costs ten times as much as most requests.
MAX_REQUESTS, ITERATION_SECONDS = 8, 0.02


class StartQueue:
    """Requests of all connections of an event loop, first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._started, self._limit = 0, MAX_REQUESTS  # in this iteration
        self._iteration_began = 0.0
        self._next_iteration: asyncio.Handle | None = None

    def submit(self, start: Callable[[], None]) -> None:
        """Call `start` now, or in one of the next iterations."""
        if self._started < self._limit and not self._waiting:
            self._started += 1
            start()
        else:
            self._waiting.append(start)
        if self._next_iteration is None:
            self._iteration_began = time.monotonic()
            self._next_iteration = asyncio.get_running_loop().call_soon(self._iterate)

    def _iterate(self) -> None:
        now = time.monotonic()
        slow = now - self._iteration_began > ITERATION_SECONDS
        self._limit = max(1, self._limit // 2) if slow else min(MAX_REQUESTS, self._limit + 1)
        self._iteration_began, self._started = now, 0
        while self._waiting and self._started < self._limit:
            self._started += 1
            self._waiting.popleft()()
        self._next_iteration = asyncio.get_running_loop().call_soon(self._iterate) if self._started else None
