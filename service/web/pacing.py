"""How fast a connection's bytes are parsed, where their sender decides what parsing them costs.

A chunk of one byte costs the parser as much as one of 64 KiB: a few MiB a second of them would take all of the event
loop. So bytes are parsed in slices; a connection that sends tiny pieces waits for its turn before each of them, and all
such connections share the turns. What waits is no more than was read at once, since reading pauses meanwhile.
"""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl

SLICE_BYTES = 4096
WHOLE_SLICE_BYTES = 2**16  # of a body that has no chunks
# A slice is dense with more pieces than this, and fewer bytes on average for each: what iterators of texts send, too.
FEW_PIECES, TINY_BYTES = 16, 64
# A body of more pieces than this, and as tiny, is refused: it would wait for its turns for seconds.
MOST_TINY_PIECES = 16_384
# A slice holds at most some 700 pieces, which take a millisecond: a fifth of the event loop for all dense connections.
TURN_SECONDS, SLICES_PER_TURN = 0.01, 2


def is_dense(pieces: int, size: int) -> bool:
    """Whether `size` bytes that held so many pieces of a body cost much more than their number."""
    return pieces > FEW_PIECES and pieces * TINY_BYTES > size


def is_flood(pieces: int, size: int) -> bool:
    """Whether a body of `size` bytes so far, in so many pieces, is no body of a client that means well."""
    return pieces > MOST_TINY_PIECES and pieces * TINY_BYTES > size


class Pacer:
    """The turns of all connections of an event loop that send tiny pieces, in the order in which they asked."""

    def __init__(self) -> None:
        self._waiting: dict[Callable[[], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, parse_a_slice: Callable[[], None]) -> None:
        """Call it once, in its turn."""
        self._waiting[parse_a_slice] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TURN_SECONDS, self._turn)

    def forget(self, parse_a_slice: Callable[[], None]) -> None:
        """Its connection has gone."""
        self._waiting.pop(parse_a_slice, None)

    def _turn(self) -> None:
        self._timer = None
        for parse_a_slice in [*self._waiting][:SLICES_PER_TURN]:
            del self._waiting[parse_a_slice]
            parse_a_slice()
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TURN_SECONDS, self._turn)


class HeldFlow(FlowControl):
    """uvicorn's flow control, with which nothing is read while what came before is not parsed yet."""

    held = False

    def hold(self) -> None:
        """Read no more, whoever asks for it."""
        self.held = True
        self.pause_reading()

    def let_go(self, resume: bool) -> None:
        """Read again: now, or when the application asks for it."""
        self.held = False
        if resume:
            self.resume_reading()

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()
