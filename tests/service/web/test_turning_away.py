"""Requests answered from their heads alone, over real sockets: on one connection with others, and never out of turn."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
import uvicorn
from anyio.from_thread import start_blocking_portal
from fastapi import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from service.settings import Settings
from service.web.protocol import limited_protocol
from tests.support_server import TIMEOUT
from tests.support_sockets import answers

BODY = b"x" * 1000
REFUSED, SERVED = (429, b"no room"), (200, b"served")


def post(path: bytes, *fields: bytes, version: bytes = b"1.1") -> bytes:
    lines = (b"Host: x", b"Content-Length: %d" % len(BODY), *fields)
    return b"POST %s HTTP/%s\r\n%s\r\n\r\n" % (path, version, b"\r\n".join(lines))


FULL, FREE = post(b"/full") + BODY, post(b"/free") + BODY
LAST = post(b"/free", b"Connection: close") + BODY


@dataclass
class Host:
    """A server that turns away what is posted to /full, with an application that tells what it was sent."""

    port: int
    state: ServerState
    asked: list[tuple[str, int]] = field(default_factory=list)

    def exchange(self, *pieces: bytes) -> list[tuple[int, bytes]]:
        """Status and body of each answer until the server closes the connection."""
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.port), TIMEOUT)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                connection.sendall(piece)
            return [(status, body) for status, _, body in answers(connection)]


@contextlib.asynccontextmanager
async def listening(settings: Settings) -> AsyncIterator[Host]:
    host = Host(0, ServerState())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        host.asked.append((scope["path"], size))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        await send({"type": "http.response.body", "body": SERVED[1]})

    def turns_away(path: str, headers: list[tuple[bytes, bytes]]) -> Response | None:
        assert (b"host", b"x") in headers
        return Response(REFUSED[1], REFUSED[0]) if path == "/full" else None

    kind = limited_protocol(settings, lambda _: None, turns_away)
    config = uvicorn.Config(app, http=kind, ws="none", lifespan="off", log_config=None)
    config.load()
    server = await asyncio.get_running_loop().create_server(lambda: kind(config, host.state, {}), "127.0.0.1", 0)
    async with server:
        host.port = server.sockets[0].getsockname()[1]
        yield host
        for connection in [*host.state.connections]:
            connection.transport.close()


@contextlib.contextmanager
def hosting(settings: Settings) -> Iterator[Host]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(listening(settings)) as host:
        yield host


@pytest.fixture
def host() -> Iterator[Host]:
    with hosting(Settings()) as started:
        yield started


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_connection_goes_on_after_what_was_turned_away(host: Host, step: int) -> None:
    whole = FULL + FREE + FULL + FULL + LAST
    found = host.exchange(*(whole[start : start + step] for start in range(0, len(whole), step)))
    assert found[0] == REFUSED
    assert host.asked[0] == host.asked[-1] == ("/free", len(BODY))
    assert found[-1] == SERVED
    assert len(found) == 5
    assert host.state.total_requests == 5


def test_a_refusal_waits_for_the_answers_before_it(host: Host) -> None:
    """So it is left to the application, which is asked in turn."""
    assert host.exchange(FREE + FULL + LAST) == [SERVED] * 3
    assert host.asked == [("/free", len(BODY)), ("/full", len(BODY)), ("/free", len(BODY))]


@pytest.mark.parametrize(
    "head",
    [
        post(b"/full", b"Connection: close"),
        post(b"/full", version=b"1.0"),
        post(b"/full", b"Connection: close, Upgrade", b"Upgrade: h2c"),
        b"GET /full HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY),
        post(b"/full?a=b", b"Connection: close"),
    ],
    ids=["close", "1.0", "upgrade", "GET", "query"],
)
def test_where_more_than_an_answer_is_needed_the_application_gives_it(host: Host, head: bytes) -> None:
    assert host.exchange(head + BODY) == [SERVED]
    assert host.asked == [("/full", len(BODY))]


def test_a_client_that_asks_first_is_told_to_go_on(host: Host) -> None:
    with contextlib.closing(socket.create_connection(("127.0.0.1", host.port), TIMEOUT)) as connection:
        connection.sendall(post(b"/full", b"Expect: 100-continue", b"Connection: close"))
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert [(status, body) for status, _, body in answers(connection)] == [SERVED]


def test_it_is_a_line_of_the_log(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="uvicorn.access"):
        assert host.exchange(FULL + LAST) == [REFUSED, SERVED]
    refused, served = (record.getMessage() for record in caplog.records if record.name == "uvicorn.access")
    assert refused.endswith('- "POST /full HTTP/1.1" 429')
    assert served == refused.replace("full", "free").replace("429", "200")


def test_a_body_that_nobody_reads_is_not_waited_for() -> None:
    with hosting(Settings(header_timeout_seconds=0.3)) as host:
        assert host.exchange(post(b"/full")) == [REFUSED]
        assert host.exchange(post(b"/full"), BODY[:10]) == [REFUSED]
    assert host.asked == []


def test_what_is_no_request_after_it_is_refused_in_turn(host: Host) -> None:
    refused, (status, body) = host.exchange(FULL + b"nonsense\r\n\r\n")
    assert (refused, status, json.loads(body)["code"]) == (REFUSED, 400, "http")


def test_one_who_takes_no_answers_is_asked_no_more_of(host: Host) -> None:
    """What is refused is not kept in memory for a client that never reads it."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", host.port), TIMEOUT)) as connection:
        connection.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 2**29:
                sent += connection.send((post(b"/full", b"X: y").replace(b"%d" % len(BODY), b"0")) * 1000)
        assert sent < 2**29
