"""How fast a connection's bytes are parsed, as the sender decides what parsing them costs.

A chunk of one byte costs the parser as much as one of 64 KiB: a few MiB per second of such chunks would take all of the
event loop. So bytes are parsed in slices. A connection that sends tiny chunks waits for its turn before each slice, and
all such connections share the turns. No more waits than was read at once, since reading pauses meanwhile.
"""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl

SLICE_BYTES = 4096
UNCHUNKED_SLICE_BYTES = 2**16  # of a body with a Content-Length
# A slice is dense if it holds more pieces of a body than this, with fewer bytes each on average. Iterators of short
# texts send such bodies, too.
FEW_PIECES, TINY_BYTES = 16, 64
# A body of more pieces than this, as tiny, is refused: it would wait for its turns for seconds.
MAX_TINY_PIECES = 16_384
# A slice holds at most some 700 pieces, which take a millisecond: dense connections get a fifth of the event loop.
TURN_SECONDS, SLICES_PER_TURN = 0.01, 2


def is_dense(pieces: int, size: int) -> bool:
    """Whether `size` bytes with so many pieces of a body cost much more to parse than their number suggests."""
    return pieces > FEW_PIECES and pieces * TINY_BYTES > size


def is_flood(pieces: int, size: int) -> bool:
    """Whether a body of `size` bytes so far, in so many pieces, is an attack rather than a wasteful client."""
    return pieces > MAX_TINY_PIECES and pieces * TINY_BYTES > size


class Pacer:
    """Turns for all connections of an event loop that send tiny chunks, first come, first served."""

    def __init__(self) -> None:
        self._waiting: dict[Callable[[], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def request_turn(self, parse_slice: Callable[[], None]) -> None:
        """Call `parse_slice` once, in its turn."""
        self._waiting[parse_slice] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TURN_SECONDS, self._turn)

    def cancel(self, parse_slice: Callable[[], None]) -> None:
        """Give up a turn, as its connection has ended."""
        self._waiting.pop(parse_slice, None)

    def _turn(self) -> None:
        self._timer = None
        for parse_slice in [*self._waiting][:SLICES_PER_TURN]:
            del self._waiting[parse_slice]
            parse_slice()
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TURN_SECONDS, self._turn)


class HeldFlow(FlowControl):
    """uvicorn's flow control, which reads nothing while earlier bytes are not parsed yet."""

    held = False

    def hold(self) -> None:
        """Stop reading, whatever the application asks for."""
        self.held = True
        self.pause_reading()

    def release(self, resume: bool) -> None:
        """Allow reading again: at once, or when the application asks for it."""
        self.held = False
        if resume:
            self.resume_reading()

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()
