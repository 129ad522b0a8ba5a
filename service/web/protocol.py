"""HTTP/1.1 as the service speaks it: uvicorn's protocol on httptools, with limits on what comes before a body.

The parser itself sets no bounds: it keeps a header field of any length, and waits for its end for ever. Here the head
of every request (and what stands between a body's chunks, and after them) is counted, and a client that owes the rest
of something has a deadline. A refusal never overtakes the answer to an earlier request on the same connection.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.schemas import Problem
from service.settings import Settings
from service.web.departure import Departure
from service.web.half_closed import HalfClosedProtocol
from service.web.middleware import PUBLIC, safe
from service.web.outgoing import Outgoing
from service.web.pacing import MOST_TINY_PIECES, SLICE_BYTES, WHOLE_SLICE_BYTES, Pacer, is_flood
from service.web.problems import make_problem, render
from service.web.turning_away import TurnsAway
from service.web.turns import Turns
from service.web.unread import has_unread

# After a refusal, how long to go on reading what the client still sends: a connection that is closed with bytes unread
# is reset, and the client may never see the answer.
LINGER_SECONDS = 2.0
# When the service stops, how long a connection without a request may take to send one.
FRESH_SECONDS = 1.0
# Before a timer closes a connection on which something has arrived: the event loop reads it in less.
LOOK_AGAIN_SECONDS = 0.05
# "GET  HTTP/1.1\r\n\r\n" around the path, and ":\r\n" around a field: what the parser does not hand over, at least.
LINE_BYTES, FIELD_BYTES = 17, 3
FRAMING = (b"content-length", b"transfer-encoding")


@dataclass(frozen=True)
class Limits:
    """What a client may send before its body, and `refused`, told the code of each refusal."""

    max_header_bytes: int
    header_timeout_seconds: float
    write_timeout_seconds: float
    refused: Callable[[str], None]


def limited_protocol(
    settings: Settings, refused: Callable[[str], None], turns_away: TurnsAway
) -> type[HttpToolsProtocol]:
    """The class of which uvicorn makes one object a connection."""
    limits = Limits(settings.max_header_bytes, settings.header_timeout_seconds, settings.write_timeout_seconds, refused)
    parts = {"limits": limits, "turns_away": staticmethod(turns_away), "pacer": Pacer(), "turns": Turns()}
    return type("Protocol", (LimitedProtocol,), parts)


class LimitedProtocol(HalfClosedProtocol):
    """One connection. Its place in the stream is `_in_head`: before the end of a head, or before that of a message."""

    limits: Limits
    turns: Turns

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.url = b""
        self._in_head = self._first = True
        self._chunked = False  # the body that comes now
        self._head_begun = False
        self._replaying = False
        self._deadline: asyncio.TimerHandle | None = None
        self._bad: Problem | None = None  # what is wrong with what was sent
        self._stopping = False
        self._departure = Departure()
        self._start_count()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._outgoing = Outgoing(transport, self.limits.write_timeout_seconds, self.loop)
        super().connection_made(self._outgoing)  # type: ignore[arg-type]
        self._departure.drained = self.flow.drain
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self._outgoing.stop()
        self._unset_keepalive_if_required()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        self._departure.announce()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Who watches over the service is never kept waiting by other clients."""
        self._running = cycle
        begin = partial(super()._start_asgi_task, cycle, app)
        if cycle.scope["path"] in PUBLIC:
            begin()
        else:
            self.turns.take(begin)

    def shutdown(self) -> None:
        """The service stops: what is asked is answered first, also what is still on its way over a connection that was
        just made, or kept. Answers say by now that they are the last."""
        self._stopping = True
        if self._answered and not self._deaf and not self.transport.is_closing():
            self._forget_deadline()
            self._unset_keepalive_if_required()
            self._deadline = self.loop.call_later(FRESH_SECONDS, self._too_late)
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._parse(data)
        self._watch()

    def _slice_bytes(self) -> int:
        if self._in_head:
            return min(SLICE_BYTES, self.limits.max_header_bytes - self._raw_bytes)
        return SLICE_BYTES if self._chunked else WHOLE_SLICE_BYTES

    def _feed(self, piece: memoryview) -> int:
        """Let the parser have it; how much it took."""
        self._moved, taken = False, len(piece)
        try:
            taken = self._feed_parser(piece)
        except httptools.HttpParserError:
            self._bad = self._bad or make_problem(400, "http", "What was sent is not valid HTTP/1.1.")
        if not self._moved:
            self._raw_bytes += len(piece)
            self._head_begun |= self._in_head
            if self._raw_bytes >= self.limits.max_header_bytes:
                self._bad = self._bad or self._too_large()
        if self._bad is not None:
            self._refuse(self._bad)
        return taken

    def _feed_parser(self, piece: memoryview) -> int:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            if self._framing:
                self._go_on_with_the_body()
            return int(upgrade.args[0])
        return len(piece)

    # ------------------------------------------------------------------ offers to speak another protocol

    @property
    def _framing(self) -> list[tuple[bytes, bytes]]:
        return [field for field in self.headers if field[0] in FRAMING]

    def _go_on_with_the_body(self) -> None:
        """A server may ignore the offer to upgrade that Java's client makes with its first request, and this one does.
        The parser would now take the body for another request: a new one is told that it is a body."""
        self.parser = httptools.HttpRequestParser(self)
        self._replaying = True
        fields = b"".join(b"%s: %s\r\n" % field for field in self._framing)
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + fields + b"\r\n")
        self._replaying = False

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to warn of: the request is answered as if no upgrade had been offered."""

    # ------------------------------------------------------------------ what the parser found

    def _start_count(self) -> None:
        """The parser got on: `_raw_bytes` counts what it was given since, `_field_bytes` what it handed over of it."""
        self._moved = True
        self._raw_bytes, self._field_bytes = 0, LINE_BYTES

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > self.limits.max_header_bytes:
            self._stop(self._too_large())

    def _stop(self, problem: Problem) -> NoReturn:
        """Parse no further, and refuse."""
        self._bad = problem
        raise OverflowError

    def _too_large(self) -> Problem:
        most = self.limits.max_header_bytes
        return make_problem(431, "head_too_large", f"The request's head is larger than {most} bytes.")

    def on_message_begin(self) -> None:
        if self._replaying:
            return
        self._head_begun = True
        super().on_message_begin()
        self.scope["extensions"] = self._departure.extensions

    def on_url(self, url: bytes) -> None:
        if self._replaying:
            return
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + FIELD_BYTES)
        if self._in_head:  # what comes after a body is no header: nothing may be smuggled in there
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._replaying:
            return
        self._check_host()
        self._forget_deadline()
        super().on_headers_complete()
        self._in_head = self._first = self._head_begun = False
        self._chunked = any(name == FRAMING[1] for name, _ in self.headers)
        self._start_count()

    def _check_host(self) -> None:
        """RFC 9112 demands it: a proxy in front and this service must not see different hosts in one request."""
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() == "1.1"):
            self._stop(make_problem(400, "http", f"Found {hosts} headers 'Host', expected one."))

    def on_body(self, body: bytes) -> None:
        self._start_count()
        if is_flood(self._body_pieces, self._body_bytes):
            detail = (
                f"The body comes in more than {MOST_TINY_PIECES} tiny chunks; send larger ones, or a Content-Length."
            )
            self._stop(make_problem(413, "tiny_chunks", detail))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and self._framing:
            return  # only the parser believes so
        self._forget_deadline()
        super().on_message_complete()
        self._in_head = True
        self._start_count()

    def on_response_complete(self) -> None:
        if self._postponed is not None and not self.pipeline:
            self.server_state.total_requests += 1
            self._answer(self._postponed)
            return
        super().on_response_complete()
        self._go_on()
        self._watch()

    # ------------------------------------------------------------------ deadlines

    def _watch(self) -> None:
        """A client that owes the rest of a head, or of a body already answered, has a deadline that bytes do not move;
        one that owes nothing may keep its connection for a while."""
        if self._deaf or self.transport.is_closing():
            return
        owes = self._answered and (self._first or self._head_begun or not self._in_head)
        if owes:
            self._unset_keepalive_if_required()
            if self._deadline is None:
                self._deadline = self.loop.call_later(self.limits.header_timeout_seconds, self._too_late)
            return
        self._forget_deadline()
        if self._answered and self._stopping:
            self._deadline = self.loop.call_later(FRESH_SECONDS, self._too_late)
        elif self._answered and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        """Look once more: where the process had no processor, what arrived in time was not read yet."""
        self._deadline = None
        if has_unread(self.transport):
            self._deadline = self.loop.call_later(LOOK_AGAIN_SECONDS, self._give_up)
        else:
            self._give_up()

    def timeout_keep_alive_handler(self) -> None:
        """As `_too_late`."""
        close = super().timeout_keep_alive_handler
        if has_unread(self.transport):
            self.timeout_keep_alive_task = self.loop.call_later(LOOK_AGAIN_SECONDS, close)
        else:
            close()

    def _give_up(self) -> None:
        self._deadline = None
        if self._head_begun:
            seconds = self.limits.header_timeout_seconds
            self._refuse(make_problem(408, "head_timeout", f"The head did not arrive within {seconds:g} seconds."))
        else:  # no answer is due: to browsers that connect in advance, or after the answer that was given already
            self.transport.close()

    # ------------------------------------------------------------------ refusals

    def _refuse(self, problem: Problem) -> None:
        """Answer with `problem`, after everything that was asked before, and close."""
        self._deaf = True
        self.limits.refused(problem.code)
        client = ":".join(map(str, self.client or ("unknown",)))
        self.logger.info("%s - refused before it was a request: %d %s", client, problem.status, problem.code)
        if self._in_head and self._answered:
            self._answer(problem)
        elif self._in_head:
            self._postponed = problem
        elif self.pipeline:  # the request that turned out bad was not begun
            self.pipeline.popleft()
            self._postponed = problem
        else:
            self._break_off(problem)

    def _break_off(self, problem: Problem) -> None:
        """The body of the request that is being answered turned out bad."""
        begun = self.cycle.response_started
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        if begun:
            self.transport.close()
        else:
            self._answer(problem)

    def _answer(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        self._write(safe(render(self.url.decode("latin-1"), problem, {"Connection": "close"})))
        if self._input_ended:
            self.transport.close()
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        """Throw away what still comes, for a while, and close."""
        self._deaf = True
        self.flow.let_go(resume=True)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._unset_keepalive_if_required()
        self._forget_deadline()
        self._outgoing.linger(LINGER_SECONDS)
