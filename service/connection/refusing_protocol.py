"""A connection that answers invalid input itself, after the responses to all earlier requests, and then ends."""

from collections.abc import Callable
from typing import Any

from fastapi import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from ..http.middleware import secured
from ..http.problems import render
from ..http.request_id import HEADER, id_of
from ..schemas import Problem
from .client_timeout import ClientTimeout
from .paced_protocol import PacedProtocol
from .state import ReadState
from .transport import ClientTransport

# How long to read on after an error response: closing a connection with unread bytes resets it, and the client may
# never see the response.
LINGER_SECONDS = 2.0


class RefusingProtocol(PacedProtocol):
    """`count_error` is called with the code of each error response."""

    count_error: Callable[[str], None]
    transport: ClientTransport  # type: ignore[assignment]
    _client_timeout: ClientTimeout

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._running: RequestResponseCycle | None = None  # `cycle` is the last one, which may wait for its turn
        self._deferred_error: Problem | None = None  # to be sent after all earlier responses

    def on_response_complete(self) -> None:
        if self._deferred_error is not None and not self.pipeline:
            self.server_state.total_requests += 1
            self._send_error(self._deferred_error)
        else:
            super().on_response_complete()

    def _refuse(self, problem: Problem) -> None:
        """Send the problem in its turn, and close."""
        in_body = self._state.in_body
        others_first = self._drop_incomplete_request() if in_body else not self._answered
        self._state = ReadState.DISCARDING
        self.count_error(problem.code)
        if others_first:
            self._deferred_error = problem
        elif in_body:
            self._break_off(problem)
        else:
            self._send_error(problem)

    def _drop_incomplete_request(self) -> bool:
        """Forget the last request, whose body will not be complete, if others are before it; whether it was so."""
        if not self.pipeline or self._running is None:
            return False
        self.pipeline.popleft()
        self.cycle = self.pipeline[0][0] if self.pipeline else self._running
        return True

    def _break_off(self, problem: Problem) -> None:
        """End the request in progress, whose body turned out to be invalid."""
        if self._answered:
            self._log_refusal(problem)
            self.transport.close()
            return
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        if self.cycle.response_started:
            self._log_refusal(problem)
            self.transport.close()
        else:
            self._send_error(problem)

    def _send_error(self, problem: Problem) -> None:
        if self.transport.is_closing():
            self._log_refusal(problem)
            return
        response = secured(render(self.url.decode("latin-1"), problem, {"Connection": "close"}))
        self._log_refusal(problem, self._write(response))
        self._discard_rest()

    def _write(self, response: Response) -> str:
        """Send the response; returns the request's id, which it carries."""
        identity = id_of(self.headers or ())
        own = (HEADER.lower().encode(), identity.encode())
        lines = b"".join(
            b"%s: %s\r\n" % pair for pair in (*self.server_state.default_headers, *response.raw_headers, own)
        )
        self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[response.status_code], lines, response.body))
        return identity

    def _log_refusal(self, problem: Problem, identity: str | None = None) -> None:
        """identity: of the answer, where there is one."""
        client = ":".join(map(str, self.client or ("unknown",)))
        line = {"client": client, "status": problem.status, "code": problem.code}
        told = {"request_id": identity, "fields": line}
        self.logger.info("%s - refused before it was a request: %d %s", *line.values(), extra=told)

    def _discard_rest(self) -> None:
        self._state = ReadState.DISCARDING
        self.flow.release(resume=True)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._unset_keepalive_if_required()
        self._client_timeout.cancel()
        self.transport.linger(LINGER_SECONDS)
