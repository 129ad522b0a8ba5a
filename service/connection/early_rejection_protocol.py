"""A connection on which a request may be answered from its head alone, without the application."""

from collections.abc import Callable
from typing import Any

from fastapi import Response
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import get_client_addr

from probity.service.connection.state import ReadState
from probity.service.http.request_id import HEADER, id_of

# From the target and the headers of a POST to its response; None: the application answers.
RejectEarly = Callable[[str, list[tuple[bytes, bytes]]], Response | None]


class EarlyRejectionProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which passes the head of each POST to `reject_early` first.

    Creating a request and a task for it would cost several times as much as the rejection itself. The application still
    answers where earlier responses are not sent yet, or where more than a response is needed: a connection that is to
    be closed, another protocol, a client that asks whether it should send its body.
    """

    reject_early: RejectEarly

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state = ReadState.NEW

    def on_headers_complete(self) -> None:
        response = self._early_response() if self._may_reject() else None
        if response is None:
            super().on_headers_complete()
            self._state = ReadState.BODY
        else:
            self.server_state.total_requests += 1
            self._log(response, self._write(response))
            self._state = ReadState.REJECTED_BODY

    def on_body(self, body: bytes) -> None:
        if self._state is not ReadState.REJECTED_BODY:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._state is not ReadState.REJECTED_BODY:
            super().on_message_complete()
        self._state = ReadState.IDLE

    @property
    def _answered(self) -> bool:
        """Whether every request so far has its whole response."""
        return self.cycle is None or self.cycle.response_complete

    def _may_reject(self) -> bool:
        parser = self.parser
        if parser.get_method() != b"POST" or not self._answered or self.pipeline or self.flow.write_paused:
            return False
        stays = parser.get_http_version() == "1.1" and parser.should_keep_alive() and not parser.should_upgrade()
        return stays and not self.expect_100_continue and not self.transport.is_closing()

    def _early_response(self) -> Response | None:
        try:
            return self.reject_early(self.url.decode("latin-1"), self.headers)
        except Exception:  # the parser would report it as the client's error
            self.logger.exception("A request was admitted, as checking for room failed")
            return None

    def _log(self, response: Response, identity: str) -> None:
        if self.access_log:
            target, client = self.url.decode("latin-1"), get_client_addr(self._forwarded_scope())
            line = (client, "POST", target, "1.1", response.status_code)
            self.access_logger.info('%s - "%s %s HTTP/%s" %d', *line, extra={"request_id": identity})

    def _forwarded_scope(self) -> Any:
        """The scope with the client that a trusted proxy names: uvicorn's middleware, which finds it, is not called."""
        forwarded = [value.decode("latin-1") for name, value in self.headers if name == b"x-forwarded-for"]
        if not forwarded or self.client is None or not isinstance(self.app, ProxyHeadersMiddleware):
            return self.scope
        trusted = self.app.trusted_hosts
        if self.client[0] not in trusted:
            return self.scope
        return {**self.scope, "client": trusted.get_trusted_client_address(", ".join(forwarded))}

    def _write(self, response: Response) -> str:
        """Send the response; returns the request's id, which it carries."""
        identity = id_of(self.headers or ())
        own = (HEADER.lower().encode(), identity.encode())
        headers = [*self.server_state.default_headers, *response.raw_headers, own]
        lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
        self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[response.status_code], lines, response.body))
        return identity
