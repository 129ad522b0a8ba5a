"""The service's HTTP/1.1: uvicorn's protocol on httptools, with limits on everything that comes before a body.

The parser sets no bounds: it keeps a header field of any length, and waits for its end for ever. Here the bytes of
every head (and those between and after the chunks of a body) are counted, and a client that owes bytes has a deadline.
An error response never overtakes the response to an earlier request on the same connection.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ..http.disconnect import DisconnectEvent
from ..http.exchange import ARRIVAL
from ..http.middleware import METRICS_PATH, PUBLIC_PATHS, secured
from ..http.problems import make_problem, render
from ..http.request_id import HEADER, id_of
from ..schemas import Problem
from ..settings import Settings
from .client_timeout import GRACE_SECONDS, ClientTimeout
from .pacing import MAX_TINY_PIECES, SLICE_BYTES, UNCHUNKED_SLICE_BYTES, Pacer, is_flood
from .refusing_protocol import RefusingProtocol
from .start_queue import StartQueue, Waiting
from .state import ReadState
from .transport import ClientTransport

MAX_HEAD_BYTES = 32 * 2**10  # request line and headers
# How long a connection without a request may take to send one when the service stops.
LAST_REQUEST_SECONDS = 1.0
# The least that the parser does not hand over: "GET  HTTP/1.1\r\n\r\n" around the path, ":\r\n" around a field.
LINE_BYTES, FIELD_BYTES = 17, 3
BUSY = make_problem(503, "busy", "Too many requests wait to be looked at; try again later.")
CONTENT_LENGTH, TRANSFER_ENCODING = b"content-length", b"transfer-encoding"


def limited_protocol(settings: Settings, count_error: Callable[[str], None]) -> type[HttpToolsProtocol]:
    """The protocol class, of which uvicorn creates an instance per connection; `count_error` gets the codes of error
    responses."""
    shared = {
        "settings": settings,
        "count_error": staticmethod(count_error),
        "pacer": Pacer(),
        "start_queue": StartQueue(),
    }
    return type("Protocol", (LimitedProtocol,), shared)


class LimitedProtocol(RefusingProtocol):
    """One connection. `_state` is its place in what the client sends."""

    settings: Settings
    start_queue: StartQueue

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = b""
        self._raw_bytes, self._field_bytes = 0, LINE_BYTES
        self._error: Problem | None = None  # found in a callback of the parser, which swallows exceptions
        self._stopping = False
        self._disconnect = DisconnectEvent()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        client = ClientTransport(transport, self.settings.client_timeout_seconds, self.loop)
        super().connection_made(client)  # type: ignore[arg-type]
        self._client_timeout = ClientTimeout(self.loop, client.has_unread, self._on_timeout)
        self._disconnect.drain = self.flow.drain
        self._update_client_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._client_timeout.cancel()
        self.transport.stop()
        self._unset_keepalive_if_required()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        self._disconnect.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start health checks at once, and other requests in their turn; 503 where too many wait for it."""
        self._running = cycle
        start, path = super()._start_asgi_task, cycle.scope["path"]
        if path in PUBLIC_PATHS:
            start(cycle, app)
            return
        waiting = Waiting(partial(start, cycle, app), lambda: cycle.disconnected)
        if not self.start_queue.submit(waiting, scrape=path == METRICS_PATH):
            self.count_error(BUSY.code)
            identity = id_of(cycle.scope["headers"])
            self._log_refusal(BUSY, identity)
            busy: Any = secured(render(path, BUSY, {"Retry-After": "1", HEADER: identity}))
            start(cycle, busy)

    def shutdown(self) -> None:
        """Stop, but first answer requests that are still on their way over a new or an idle connection. Responses
        already announce that they are the last. A second time changes nothing."""
        if self._stopping:
            return
        self._stopping = True
        if self._answered and not self._discarding and not self.transport.is_closing():
            self._client_timeout.cancel()
            self._unset_keepalive_if_required()
            self._client_timeout.start(LAST_REQUEST_SECONDS)
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._parse(data)
        self._update_client_timeout()

    # ------------------------------------------------------------------ feeding the parser

    def _slice_bytes(self) -> int:
        if not self._state.in_body:
            return min(SLICE_BYTES, MAX_HEAD_BYTES - self._raw_bytes)
        chunked = any(name == TRANSFER_ENCODING for name, _ in self.headers)
        return SLICE_BYTES if chunked else UNCHUNKED_SLICE_BYTES

    def _feed(self, piece: memoryview) -> int:
        self._raw_bytes += len(piece)
        taken = len(piece)
        try:
            taken = self._feed_parser(piece)
        except httptools.HttpParserError as error:
            detail = f"What was sent is not HTTP/1.1 as it is taken here: {error!s:.100}."
            self._error = self._error or make_problem(400, "http", detail)
        if self._raw_bytes and self._state in (ReadState.NEW, ReadState.IDLE):
            self._state = ReadState.HEAD
        if self._raw_bytes >= MAX_HEAD_BYTES:
            self._error = self._error or self._head_too_large()
        if self._error is not None:
            self._refuse(self._error)
        return taken

    def _feed_parser(self, piece: memoryview) -> int:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            if self._framing:
                self._continue_with_body()
            return int(upgrade.args[0])
        return len(piece)

    @property
    def _framing(self) -> list[tuple[bytes, bytes]]:
        return [field for field in self.headers if field[0] in (CONTENT_LENGTH, TRANSFER_ENCODING)]

    def _continue_with_body(self) -> None:
        """Ignore an offer to upgrade, as RFC 9110 allows; Java's client makes one with its first request.

        The parser would take the body for another request. A new parser gets a head of its own, which makes it expect
        the body; callbacks for that head come in the state BODY, and are ignored.
        """
        self.parser = httptools.HttpRequestParser(self)
        fields = b"".join(b"%s: %s\r\n" % field for field in self._framing)
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + fields + b"\r\n")

    # ------------------------------------------------------------------ callbacks of the parser

    def _on_progress(self) -> None:
        """Restart the counts: `_raw_bytes` given to the parser since it got on, `_field_bytes` handed over of them."""
        self._raw_bytes, self._field_bytes = 0, LINE_BYTES

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > MAX_HEAD_BYTES:
            self._stop_parsing(self._head_too_large())

    def _stop_parsing(self, problem: Problem) -> NoReturn:
        self._error = problem
        raise OverflowError

    def _head_too_large(self) -> Problem:
        return make_problem(431, "head_too_large", f"The request's head is larger than {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        if not self._state.in_body:
            self._state = ReadState.HEAD
            super().on_message_begin()
            self.scope["extensions"] = {**self._disconnect.extensions, ARRIVAL: {"at": self.loop.time()}}

    def on_url(self, url: bytes) -> None:
        if not self._state.in_body:
            self._count(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + FIELD_BYTES)
        if not self._state.in_body:  # trailers after a body are no headers: nothing may be smuggled in there
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._state.in_body:
            self._check_host()
            self._client_timeout.cancel()
            super().on_headers_complete()
            self._on_progress()

    def _check_host(self) -> None:
        """RFC 9112 demands it: a proxy in front and this service must not see different hosts in one request."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            self._stop_parsing(make_problem(400, "http", f"Found {hosts} headers 'Host', expected one."))

    def on_body(self, body: bytes) -> None:
        self._on_progress()
        if is_flood(self._body_pieces, self._body_bytes):
            detail = (
                f"The body comes in more than {MAX_TINY_PIECES} tiny chunks; send larger ones, or a Content-Length."
            )
            self._stop_parsing(make_problem(413, "tiny_chunks", detail))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and self._framing:
            return  # only the parser believes so: the body follows
        self._client_timeout.cancel()
        super().on_message_complete()
        self._on_progress()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._continue_parsing()
        self._update_client_timeout()

    # ------------------------------------------------------------------ deadlines

    def _update_client_timeout(self) -> None:
        """A client that owes the rest of a head, or of a body that was answered already, has a deadline that further
        bytes do not move; one that owes nothing may keep its connection for a while."""
        if self._discarding or self.transport.is_closing():
            return
        if self._answered and self._state is not ReadState.IDLE:
            self._unset_keepalive_if_required()
            self._client_timeout.start(self._head_seconds)
            return
        self._client_timeout.cancel()
        if self._answered and self._stopping:
            self._client_timeout.start(LAST_REQUEST_SECONDS)
        elif self._answered and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless the next request has arrived: see `ClientTimeout`."""
        close = super().timeout_keep_alive_handler
        if self.transport.has_unread():
            self.timeout_keep_alive_task = self.loop.call_later(GRACE_SECONDS, close)
        else:
            close()

    @property
    def _head_seconds(self) -> float:
        """How long a head may take to arrive."""
        return self.settings.client_timeout_seconds / 3

    def _on_timeout(self) -> None:
        if self._state is ReadState.HEAD:
            seconds = self._head_seconds
            self._refuse(make_problem(408, "head_timeout", f"The head did not arrive within {seconds:g} seconds."))
        else:  # no response is due: browsers connect in advance, and a body may have been answered already
            self.transport.close()
