"""A client that has sent its request and closed its side of the connection is answered.

To the server it looks like one that has gone: both send an end of the stream. They differ only when something is sent:
the system of a client that has gone refuses it. So the beginning of the answer, which is always the same, is sent at
once, and the connection is looked at until the rest of the answer is there.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.schemas import Problem
from service.web.outgoing import Outgoing
from service.web.paced import PacedProtocol

FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.01, 1.0


class HalfClosedProtocol(PacedProtocol):
    """A connection that goes on for the answers that are due when its client will send no more."""

    _outgoing: Outgoing

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: RequestResponseCycle | None = None  # `cycle` is the last one, that may wait for its turn
        self._postponed: Problem | None = None  # what is answered after everything that was asked before
        self._input_ended = False
        self._look_timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client will send no more. True: go on, as whole requests of it have no answer yet."""
        if not self._in_head and not self._give_up_the_last():
            return False
        if self._answered and not self.pipeline:
            return False
        if self._postponed is None:
            self.cycle.keep_alive = False
        if not self._input_ended:
            self._input_ended = True
            self._look_for_the_client()
        return True

    def _give_up_the_last(self) -> bool:
        """The rest of the body of the last request will never come; whether there are others."""
        if not self.pipeline or self._running is None:
            return False
        self.pipeline.popleft()
        self.cycle = self.pipeline[0][0] if self.pipeline else self._running
        self._in_head = True
        return True

    def _look_for_the_client(self) -> None:
        """An answer that is being sent already tells by itself."""
        if self._running is None or not self._running.response_started:
            self._outgoing.begin()
        self._look_after(FIRST_LOOK_SECONDS)

    def _look_after(self, seconds: float) -> None:
        self._look_timer = self.loop.call_later(seconds, self._look, seconds)

    def _look(self, waited: float) -> None:
        if self._outgoing.refused():
            self.transport.abort()
        else:
            self._look_after(min(2 * waited, LAST_LOOK_SECONDS))
