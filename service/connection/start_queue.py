"""A limit on how many requests start in one iteration of the event loop, so that a crowd does not delay health checks.

A request that needs nothing but the event loop takes up to some milliseconds there. Hundreds of connections with a
request each would make a single iteration last for a second, and a health check takes several iterations.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

# Fewer requests start after an iteration that took longer than this: some cost much more than most.
MAX_REQUESTS, ITERATION_SECONDS = 8, 0.02
MAX_WAITING = 1000  # more are refused: in the time that they would wait, their clients are gone
SCRAPES = 1  # in each iteration, after the others


@dataclass(frozen=True)
class Waiting:
    """A request that has not started: what starts it, and whether its client has left."""

    start: Callable[[], object]
    gone: Callable[[], bool]


class StartQueue:
    """Requests of all connections of an event loop, first come, first served; scrapes of the metrics come last."""

    def __init__(self) -> None:
        self._requests, self._scrapes = deque[Waiting](), deque[Waiting]()
        self._started, self._limit, self._swept = 0, MAX_REQUESTS, False  # in this iteration
        self._iteration_began = 0.0
        self._next_iteration: asyncio.Handle | None = None

    def submit(self, request: Waiting, *, scrape: bool = False) -> bool:
        """Start the request now, or in one of the next iterations unless its client leaves before.

        False where too many wait: then it will not start.
        """
        waiting, most = (self._scrapes, SCRAPES) if scrape else (self._requests, self._limit)
        if self._started < most and not waiting:
            self._started += 1
            request.start()
        elif len(waiting) < MAX_WAITING or (not self._swept and self._drop_gone(waiting)):
            waiting.append(request)
        else:
            return False
        if self._next_iteration is None:
            self._iteration_began = time.monotonic()
            self._next_iteration = asyncio.get_running_loop().call_soon(self._iterate)
        return True

    def _drop_gone(self, waiting: deque[Waiting]) -> bool:
        """Forget those whose clients have left, once an iteration; whether there is room now."""
        self._swept = True
        stayed = [request for request in waiting if not request.gone()]
        waiting.clear()
        waiting.extend(stayed)
        return len(waiting) < MAX_WAITING

    def _iterate(self) -> None:
        now = time.monotonic()
        slow = now - self._iteration_began > ITERATION_SECONDS
        self._limit = max(1, self._limit // 2) if slow else min(MAX_REQUESTS, self._limit + 1)
        self._iteration_began, self._started, self._swept = now, 0, False
        self._start(self._requests, self._limit)
        self._start(self._scrapes, SCRAPES)
        busy = self._started or self._requests or self._scrapes
        self._next_iteration = asyncio.get_running_loop().call_soon(self._iterate) if busy else None

    def _start(self, waiting: deque[Waiting], most: int) -> None:
        """Start so many of those whose clients are still there."""
        while waiting and most:
            request = waiting.popleft()
            if not request.gone():
                most -= 1
                self._started += 1
                request.start()
