"""Half-closed connections: a client that has shut down its side is answered, one that is gone is not waited for."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.bundles import Synthetic
from tests.support.host import Host, hosting
from tests.support.server import TIMEOUT, running
from tests.support.sockets import answers

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
PREDICT = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"


class Waiting:
    """An application whose responses wait until they are released; `left` is set if the client disconnects before."""

    def __init__(self) -> None:
        self.asked, self.left = threading.Semaphore(0), threading.Event()
        self._release = threading.Event()

    def release(self) -> None:
        self._release.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive()).get("more_body"):
            pass  # responding before the body is complete would race with the end of the stream
        if message["type"] == "http.disconnect":
            self.left.set()
            return
        self.asked.release()
        leaving = asyncio.ensure_future(receive())
        released = asyncio.ensure_future(asyncio.to_thread(self._release.wait))
        await asyncio.wait([leaving, released], return_when=asyncio.FIRST_COMPLETED)
        if leaving.done():
            self.left.set()
        leaving.cancel()
        await released
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        await send({"type": "http.response.body", "body": b"served"})


@pytest.fixture
def app() -> Iterator[Waiting]:
    waiting = Waiting()
    yield waiting
    waiting.release()


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def host(app: Waiting, request: pytest.FixtureRequest) -> Iterator[Host]:
    with hosting(app, uvloop=request.param) as started:
        yield started
        app.release()


@pytest.mark.parametrize("requests", [1, 3])
def test_a_slow_response_is_complete(host: Host, app: Waiting, requests: int) -> None:
    with host.connection() as connection:
        connection.sendall(GET * requests)
        connection.shutdown(socket.SHUT_WR)
        assert app.asked.acquire(timeout=TIMEOUT)
        if requests == 1:  # sent ahead of the response, to find out whether the client is there
            assert connection.recv(9, socket.MSG_PEEK) == b"HTTP/1.1 "
        app.release()
        found = answers(connection)
    assert [(status, body) for status, _, body in found] == [(200, b"served")] * requests
    assert found[-1][1]["connection"] == "close"
    assert not app.left.is_set()


def test_a_client_that_is_gone_is_not_waited_for(host: Host, app: Waiting) -> None:
    with host.connection() as connection:
        connection.sendall(GET)
        assert app.asked.acquire(timeout=TIMEOUT)
    assert app.left.wait(TIMEOUT)


def test_a_client_that_goes_later_is_not_waited_for(host: Host, app: Waiting) -> None:
    with host.connection() as connection:
        connection.sendall(GET)
        connection.shutdown(socket.SHUT_WR)
        assert app.asked.acquire(timeout=TIMEOUT)
        assert connection.recv(9) == b"HTTP/1.1 "
        assert not app.left.is_set()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # with a reset
    assert app.left.wait(TIMEOUT)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (GET + PREDICT % (10, b"half"), [200]),
        (PREDICT % (10, b"half"), []),
        (GET + GET + b"GET / HT", [200, 200]),
        (GET + GET + b"nonsense\r\n\r\n", [200, 200, 400]),
        (GET + CHUNKED + b"nonsense\r\n", [200, 400]),
        (GET + GET + CHUNKED + b"nonsense\r\n", [200, 200, 400]),
        (b"GET / HTTP/1.0\r\n\r\n", [200]),
        (b"", []),
    ],
    ids=[
        "half a body after another",
        "half a body",
        "half a head",
        "nonsense",
        "nonsense in a body",
        "nonsense in a third body",
        "1.0",
        "nothing",
    ],
)
def test_complete_requests_are_answered(host: Host, app: Waiting, sent: bytes, expected: list[int]) -> None:
    """No response can close the connection before the client has shut down its side."""
    with host.connection() as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        app.release()
        assert [status for status, _, _ in answers(connection)] == expected


def test_predictions_for_a_client_that_has_shut_down_its_side(classification: Synthetic) -> None:
    body = b'{"inputs": [[0, 0, 0, 0]]}'
    with running(classification.path) as server:
        for count in (1, 5):
            with server.socket() as connection:
                connection.sendall(PREDICT % (len(body), body) * count)
                connection.shutdown(socket.SHUT_WR)
                found = answers(connection)
            assert [(status, b"predictions" in body) for status, _, body in found] == [(200, True)] * count
        assert not [line for line in server.lines if "Traceback" in line]
