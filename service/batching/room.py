"""Room in a queue: requests wait for it, but not for ever.

To refuse takes nearly as much of the event loop as to receive, and a client that asks again at once keeps it so busy
that what was admitted is not computed. A request that waits before it is refused bounds that: as many are refused in a
second as there are connections, however fast they ask.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from .clock import Clock
from .errors import SLOW_SECONDS, CancelledWhileSlow
from .queue import RowQueue

PATIENCE_SECONDS = 1.0


class Room:
    """Of one queue. `advance` is to be called where rows leave it. retry_after: seconds, for who waits in vain."""

    def __init__(self, queue: RowQueue, clock: Clock, retry_after: Callable[[], float]) -> None:
        self.queue, self.clock, self.retry_after = queue, clock, retry_after
        self.turns: dict[asyncio.Future[None], int] = {}  # and their rows, in the order of arrival

    def advance(self) -> None:
        """Give room to those that wait, whoever came first: but who fits does not wait for who does not."""
        for turn, rows in [*self.turns.items()] if self.turns and self.queue.has_room(1) else ():
            if self.queue.has_room(rows):
                del self.turns[turn]
                if not turn.done():
                    self.queue.promised += rows
                    turn.set_result(None)


class Place:
    """Room for a request of about so many rows: taken until the block `with place` ends. waited: seconds for it."""

    def __init__(self, room: Room, rows: int) -> None:
        self._room, self._rows, self.waited = room, rows, 0.0

    def take(self) -> bool:
        """Whether there is room, which is taken then."""
        found = self._room.queue.has_room(self._rows)
        self._room.queue.promised += self._rows if found else 0
        return found

    async def wait(self, deadline: float, *, stays: bool = True) -> None:
        """Take room once there is some, for at most a second; then raise `QueueFull`. stays: whether it can be used, or
        the request is only to be refused."""
        room, turn = self._room, asyncio.get_running_loop().create_future()
        arrived = room.clock.time()

        def refuse(waiting: asyncio.Future[None]) -> None:
            if not waiting.done():
                waiting.set_exception(room.queue.full(room.retry_after()))

        if stays:
            room.turns[turn] = self._rows
        timer = room.clock.call_at(min(deadline, arrived + PATIENCE_SECONDS), partial(refuse, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # room was given in this iteration
                room.queue.promised -= self._rows
                room.advance()
            if room.clock.time() - arrived > SLOW_SECONDS:
                raise CancelledWhileSlow from None
            raise
        finally:
            timer.cancel()
            room.turns.pop(turn, None)
            del turn  # holds the error that holds this frame
            self.waited = room.clock.time() - arrived

    def __enter__(self) -> None:
        """It was taken."""

    def __exit__(self, *_: object) -> None:
        self._room.queue.promised -= self._rows
        if self._room.turns:
            asyncio.get_running_loop().call_soon(self._room.advance)  # once its rows are in the queue
