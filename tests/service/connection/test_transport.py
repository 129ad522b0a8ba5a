"""The client transport over real sockets: slow readers are served, clients that read nothing are cut off."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from operator import methodcaller

import pytest
from starlette.types import Receive, Scope, Send

from demur.service.connection.transport import ClientTransport
from demur.service.settings import Settings
from tests.support.host import Host, hosting
from tests.support.processes import wait_until
from tests.support.server import TIMEOUT

SECONDS = 2.0
SMALL, LARGE = 40 * 2**10, 16 * 2**20


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    size = LARGE if scope["path"] == "/large" else SMALL
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    await send({"type": "http.response.body", "body": bytes(size)})


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    settings = Settings(client_timeout_seconds=SECONDS)
    with hosting(app, settings=settings, uvloop=request.param) as started:
        yield started


@contextlib.contextmanager
def small_receiver(host: Host) -> Iterator[socket.socket]:
    """A client whose system buffers little, so that the rest waits on the service's side."""
    with contextlib.closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        connection.settimeout(TIMEOUT)
        connection.connect(("127.0.0.1", host.port))
        yield connection


def get(path: bytes, *fields: bytes) -> bytes:
    return b"GET %s HTTP/1.1\r\n%s\r\n\r\n" % (path, b"\r\n".join((b"Host: x", *fields)))


def waiting_bytes(host: Host) -> int:
    return sum(connection.transport.get_write_buffer_size() for connection in [*host.state.connections])


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        get(b"/large", b"Connection: close"),
        get(b"/large") + b"nonsense\r\n\r\n",  # refused: the connection ends after the responses
    ],
    ids=["last response", "before an error"],
)
def test_a_steady_slow_reader_gets_the_whole_response(host: Host, asked: bytes) -> None:
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


@pytest.mark.parametrize("fields", [[b"Connection: close"], []], ids=["last response", "keep-alive"])
def test_a_client_that_takes_nothing_of_a_large_response_is_cut_off(host: Host, fields: list[bytes]) -> None:
    with small_receiver(host) as connection:
        connection.sendall(get(b"/large", *fields))
        wait_until(lambda: waiting_bytes(host) > 0)
        wait_until(lambda: not host.state.connections)


def test_a_client_that_takes_nothing_of_small_responses_is_cut_off(host: Host) -> None:
    """Too little waits for the transport to pause writing."""
    with small_receiver(host) as connection:
        asked = 0
        while not waiting_bytes(host):
            connection.sendall(get(b"/small"))
            asked += 1
            wait_until(lambda: host.state.total_requests == asked)  # noqa: B023  called in this round
        wait_until(lambda: not host.state.connections)


HEAD, BODY = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", b"body"


class RecordingTransport(asyncio.Transport):
    """Notes what would be given to the system."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(bytes(data))

    def write_eof(self) -> None:
        self.calls.append("write_eof")

    def close(self) -> None:
        self.calls.append("close")

    def get_write_buffer_size(self) -> int:
        return 0


def written(*steps: Callable[[ClientTransport], object] | None) -> list[bytes | str]:
    """What reaches the system after these steps; None: the event loop's iteration ends."""
    recording = RecordingTransport()

    async def take_steps() -> None:
        transport = ClientTransport(recording, SECONDS, asyncio.get_running_loop())
        for step in steps:
            if step is None:
                await asyncio.sleep(0)
            else:
                step(transport)

    asyncio.run(take_steps())
    return recording.calls


def write(data: bytes) -> Callable[[ClientTransport], object]:
    return lambda transport: transport.write(data)


def test_a_head_and_its_body_leave_together() -> None:
    assert written(write(HEAD), write(BODY), write(HEAD), write(BODY), None) == [HEAD + BODY] * 2
    assert written(write(HEAD), write(b""), None) == [HEAD]


def test_a_head_does_not_wait_longer_than_an_iteration_of_the_event_loop() -> None:
    assert written(write(HEAD), None, write(BODY)) == [HEAD, BODY]


@pytest.mark.parametrize("end", ["write_eof", "close"])
def test_a_head_leaves_before_the_end(end: str) -> None:
    assert written(write(HEAD), methodcaller(end), None) == [HEAD, end]
