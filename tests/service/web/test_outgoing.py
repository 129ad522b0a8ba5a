"""service/web/outgoing.py over real sockets: who reads slowly is served, who reads nothing is given up."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from starlette.types import Receive, Scope, Send

from service.settings import Settings
from tests.support.host import Host, hosting
from tests.support.server import TIMEOUT

SECONDS = 2.0
SMALL, LARGE = 40 * 2**10, 16 * 2**20


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    size = LARGE if scope["path"] == "/large" else SMALL
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": bytes(size)})


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    settings = Settings(write_timeout_seconds=SECONDS)
    with hosting(app, lambda path, headers: None, settings, uvloop=request.param) as started:
        yield started


@contextlib.contextmanager
def small_receiver(host: Host) -> Iterator[socket.socket]:
    """The system takes little on the client's side, so that the rest waits on the service's."""
    with contextlib.closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        connection.settimeout(TIMEOUT)
        connection.connect(("127.0.0.1", host.port))
        yield connection


def get(path: bytes, *fields: bytes) -> bytes:
    return b"GET %s HTTP/1.1\r\n%s\r\n\r\n" % (path, b"\r\n".join((b"Host: x", *fields)))


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end


def waiting_bytes(host: Host) -> int:
    return sum(connection.transport.get_write_buffer_size() for connection in [*host.state.connections])


@pytest.mark.parametrize(
    "asked",
    [
        get(b"/large", b"Connection: close"),
        get(b"/large") + b"nonsense\r\n\r\n",  # refused: the connection ends after the answers
    ],
    ids=["last answer", "before a refusal"],
)
def test_a_steady_slow_reader_gets_the_whole_answer(host: Host, asked: bytes) -> None:
    """It takes 64 KiB ten times a second, for longer than twice the time in which one may take nothing."""
    with small_receiver(host) as connection:
        connection.sendall(asked)
        end, received = time.monotonic() + 2.5 * SECONDS, 0
        while time.monotonic() < end:
            received += len(connection.recv(2**16))
            time.sleep(0.1)  # this is what makes it slow
        assert waiting_bytes(host) > 0
        while data := connection.recv(2**20):
            received += len(data)
    assert received > LARGE


@pytest.mark.parametrize("fields", [[b"Connection: close"], []], ids=["last answer", "keep-alive"])
def test_one_who_takes_nothing_of_a_large_answer_is_given_up(host: Host, fields: list[bytes]) -> None:
    with small_receiver(host) as connection:
        connection.sendall(get(b"/large", *fields))
        wait_until(lambda: waiting_bytes(host) > 0)
        wait_until(lambda: not host.state.connections)


def test_one_who_takes_nothing_of_small_answers_is_given_up(host: Host) -> None:
    """What waits is too little for the transport to complain."""
    with small_receiver(host) as connection:
        asked = 0
        while not waiting_bytes(host):
            connection.sendall(get(b"/small"))
            asked += 1
            wait_until(lambda: host.state.total_requests == asked)  # noqa: B023  called in this round
        wait_until(lambda: not host.state.connections)
