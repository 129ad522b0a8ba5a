"""A connection on which a request may be answered from its head alone, before the application hears of it."""

from collections.abc import Callable
from typing import Any

from fastapi import Response
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import get_client_addr

# From the target and the headers of a POST to its answer; None: the application answers.
TurnsAway = Callable[[str, list[tuple[bytes, bytes]]], Response | None]


class TurningAwayProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which asks `turns_away` about the head of each POST.

    To make a request and a task of it first would cost several times as much as the refusal itself. That way is still
    taken where earlier answers are not sent yet, or where more than an answer is needed: a connection that is to be
    closed, another protocol, a client that asks whether it should send its body.
    """

    turns_away: TurnsAway

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turned_away = False  # the request whose body comes now

    def on_message_begin(self) -> None:
        self._turned_away = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        response = self._early_answer() if self._may_turn_away() else None
        if response is None:
            super().on_headers_complete()
            return
        self._turned_away = True
        self.server_state.total_requests += 1
        self._log(response)
        self._write(response)

    def on_body(self, body: bytes) -> None:
        if not self._turned_away:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._turned_away:
            super().on_message_complete()

    @property
    def _answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _may_turn_away(self) -> bool:
        parser = self.parser
        if parser.get_method() != b"POST" or not self._answered or self.pipeline or self.flow.write_paused:
            return False
        stays = parser.get_http_version() == "1.1" and parser.should_keep_alive() and not parser.should_upgrade()
        return stays and not self.expect_100_continue and not self.transport.is_closing()

    def _early_answer(self) -> Response | None:
        try:
            return self.turns_away(self.url.decode("latin-1"), self.headers)
        except Exception:  # the parser would take it for the client's mistake
            self.logger.exception("A request was let in, as it could not be told whether there is room for it")
            return None

    def _log(self, response: Response) -> None:
        if self.access_log:
            target, client = self.url.decode("latin-1"), get_client_addr(self._forwarded_scope())
            self.access_logger.info('%s - "%s %s HTTP/%s" %d', client, "POST", target, "1.1", response.status_code)

    def _forwarded_scope(self) -> Any:
        """With the client that a trusted proxy names, as uvicorn's middleware finds it; it is not asked here."""
        named = [value.decode("latin-1") for name, value in self.headers if name == b"x-forwarded-for"]
        if not named or self.client is None or not isinstance(self.app, ProxyHeadersMiddleware):
            return self.scope
        trusted = self.app.trusted_hosts
        if self.client[0] not in trusted:
            return self.scope
        return {**self.scope, "client": trusted.get_trusted_client_address(", ".join(named))}

    def _write(self, response: Response) -> None:
        headers = [*self.server_state.default_headers, *response.raw_headers]
        lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
        self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[response.status_code], lines, response.body))
