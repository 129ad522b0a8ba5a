"""Room in a queue: requests wait for it in the order of their arrival, but not for ever.

To refuse takes nearly as much of the event loop as to receive, and a client that asks again at once keeps it so busy
that what was admitted is not computed. A request that waits before it is refused bounds that: as many are refused in a
second as there are connections, however fast they ask.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from .clock import Clock
from .errors import SLOW_SECONDS, CancelledWhileSlow
from .queue import RowQueue

PATIENCE_SECONDS = 1.0
Attended = Callable[[], AbstractAsyncContextManager[object]]


class Room:
    """Of one queue. `advance` is to be called where rows leave it. retry_after: seconds, for those who wait in vain."""

    def __init__(self, queue: RowQueue, clock: Clock, retry_after: Callable[[], float]) -> None:
        self._queue, self._clock, self._retry_after = queue, clock, retry_after
        self._turns: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def reserve(self, rows: int, deadline: float, attended: Attended) -> AbstractContextManager[float]:
        """Room for about so many rows until a `with` block ends, which gets the seconds that it was waited for.

        Raises `QueueFull`, and what `attended()` raises, inside which it waits.
        """
        arrived = self._clock.time()
        if not self._turns and self._queue.has_room(rows):
            self._queue.promised += rows
            return self._reserved(rows, 0.0)
        async with attended():
            await self._turn(rows, arrived, min(deadline, arrived + PATIENCE_SECONDS))
        return self._reserved(rows, self._clock.time() - arrived)

    def advance(self) -> None:
        """Give room to those whose turn it is."""
        while self._turns and (self._turns[0][1].done() or self._queue.has_room(self._turns[0][0])):
            rows, turn = self._turns.popleft()
            if not turn.done():
                self._queue.promised += rows
                turn.set_result(None)

    async def _turn(self, rows: int, arrived: float, end: float) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append((rows, turn))
        timer = self._clock.call_at(end, lambda: self._refuse(turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # its turn came in the same iteration
                self._queue.promised -= rows
            self.advance()
            if self._clock.time() - arrived > SLOW_SECONDS:
                raise CancelledWhileSlow from None
            raise
        finally:
            timer.cancel()

    def _refuse(self, turn: "asyncio.Future[None]") -> None:
        if not turn.done():
            turn.set_exception(self._queue.full(self._retry_after()))
            self.advance()

    @contextlib.contextmanager
    def _reserved(self, rows: int, waited: float) -> Iterator[float]:
        try:
            yield waited
        finally:
            self._queue.promised -= rows
            asyncio.get_running_loop().call_soon(self.advance)  # once its rows are in the queue
