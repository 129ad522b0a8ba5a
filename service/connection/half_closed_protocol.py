"""A client that has sent its request and shut down its side of the connection gets its response.

The server sees the same end of the stream as from a client that is gone. The two differ only when something is sent:
the system of a client that is gone refuses it. So the beginning of the response, which is always the same, is sent at
once, and the connection is checked until the rest of the response is there.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from probity.service.connection.paced_protocol import PacedProtocol
from probity.service.connection.state import ReadState
from probity.service.connection.transport import ClientTransport
from probity.service.schemas import Problem

FIRST_CHECK_SECONDS, LAST_CHECK_SECONDS = 0.01, 1.0


class HalfClosedProtocol(PacedProtocol):
    """A connection that stays open for the responses that are due after its client has shut down its side."""

    transport: ClientTransport  # type: ignore[assignment]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: RequestResponseCycle | None = None  # `cycle` is the last one, which may wait for its turn
        self._deferred_error: Problem | None = None  # to be sent after all earlier responses
        self._input_ended = False
        self._check_timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client will send no more. True: stay open, as whole requests still wait for their responses."""
        if self._state.in_body and not self._drop_incomplete_request():
            return False
        if self._discarding and self._deferred_error is None:  # the last response is written
            return False
        if self._answered and not self.pipeline:
            return False
        if self._deferred_error is None:
            self.cycle.keep_alive = False
        if not self._input_ended:
            self._input_ended = True
            self._start_checking()
        return True

    def _drop_incomplete_request(self) -> bool:
        """Forget the last request, whose body will not be complete, if others are before it; whether it was so."""
        if not self.pipeline or self._running is None:
            return False
        self.pipeline.popleft()
        self.cycle = self.pipeline[0][0] if self.pipeline else self._running
        self._state = ReadState.IDLE
        return True

    def _start_checking(self) -> None:
        """Probe for the client, unless a response that is being sent does so by itself."""
        if self._running is None or not self._running.response_started:
            self.transport.probe()
        self._check_after(FIRST_CHECK_SECONDS)

    def _check_after(self, seconds: float) -> None:
        self._check_timer = self.loop.call_later(seconds, self._check, seconds)

    def _check(self, waited: float) -> None:
        if self.transport.refused():
            self.transport.abort()
        else:
            self._check_after(min(2 * waited, LAST_CHECK_SECONDS))
