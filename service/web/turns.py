"""How many requests the event loop begins in one round, so that a crowd of connections does not hold up the rest.

A request that needs no more than the event loop takes up to some milliseconds there. Hundreds of connections, each with
a request of its own, would make a single round last for a second, and an answer about health takes several rounds.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

# Few requests, and fewer still after a round that took longer than this: scrapes take ten times as long as most.
MOST_REQUESTS, ROUND_SECONDS = 8, 0.02


class Turns:
    """The requests of all connections of an event loop, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._begun, self._most = 0, MOST_REQUESTS  # in this round
        self._round_began = 0.0
        self._next_round: asyncio.Handle | None = None

    def take(self, begin: Callable[[], None]) -> None:
        """Call it at once, or in one of the next rounds."""
        if self._begun < self._most and not self._waiting:
            self._begun += 1
            begin()
        else:
            self._waiting.append(begin)
        if self._next_round is None:
            self._round_began = time.monotonic()
            self._next_round = asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        now = time.monotonic()
        slow = now - self._round_began > ROUND_SECONDS
        self._most = max(1, self._most // 2) if slow else min(MOST_REQUESTS, self._most + 1)
        self._round_began, self._begun = now, 0
        while self._waiting and self._begun < self._most:
            self._begun += 1
            self._waiting.popleft()()
        self._next_round = asyncio.get_running_loop().call_soon(self._round) if self._begun else None
