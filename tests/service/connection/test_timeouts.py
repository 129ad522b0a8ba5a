"""Deadlines over real sockets: for heads, for bodies that were answered early, and for clients that take nothing."""

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.host import hosting
from tests.support.metrics import metric
from tests.support.processes import wait_until
from tests.support.requests import GOOD
from tests.support.server import TIMEOUT, Server, running
from tests.support.sockets import answers, exchange, refused

READ = b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
BODY = json.dumps({"inputs": GOOD}).encode()
PREDICT = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY)


@pytest.fixture(scope="module")
def hasty(classification: Synthetic) -> Iterator[Server]:
    with running(classification.path, DEMUR_CLIENT_TIMEOUT_SECONDS="0.9") as started:
        yield started


def errors_of(server: Server, reason: str) -> float:
    text = server.request("GET", "/metrics")[2].decode()
    return sum(map(float, re.findall(rf'^demur_errors_total{{reason="{reason}"}} (\S+)$', text, re.MULTILINE)))


def test_a_head_that_does_not_end_is_408(hasty: Server) -> None:
    assert refused(exchange(hasty, b"GET /health/live HTTP/1.1\r\n"), 408) == "head_timeout"
    assert refused(exchange(hasty, READ + b"G"), 200, 408) == "head_timeout"
    assert refused(exchange(hasty, b"\r\n"), 408) == "head_timeout"
    before = errors_of(hasty, "head_timeout")
    assert refused(exchange(hasty, b"nonsense\r\n\r\n"), 400) == "http"
    assert refused(exchange(hasty, b"GET"), 408) == "head_timeout"  # twice the time is over, for the first one too
    assert errors_of(hasty, "head_timeout") == before + 1


def test_dripping_bytes_win_no_time(hasty: Server) -> None:
    with contextlib.closing(hasty.socket()) as connection:
        connection.settimeout(0.01)
        connection.sendall(READ)
        received = b""
        for byte in b"GET /" + b"a" * 5000:
            with contextlib.suppress(TimeoutError):
                received += connection.recv(65536)
            if b"HTTP/1.1 408 " in received:
                assert received.startswith(b"HTTP/1.1 200 ")
                return
            with contextlib.suppress(ConnectionError):  # the response may have come meanwhile
                connection.sendall(bytes([byte]))
    pytest.fail("the head was waited for")


def test_a_connection_without_a_request_is_closed_without_a_response(hasty: Server) -> None:
    assert exchange(hasty) == []


def test_a_body_may_take_longer_than_a_head(hasty: Server) -> None:
    with contextlib.closing(hasty.socket()) as slow:
        slow.sendall(PREDICT + BODY[:-1])
        for _ in range(2):  # twice the deadline of a head passes
            assert refused(exchange(hasty, b"G"), 408) == "head_timeout"
        slow.sendall(BODY[-1:] + LAST)
        assert [status for status, _, _ in answers(slow)] == [200, 200]


def test_the_deadline_of_a_head_begins_after_earlier_responses() -> None:
    started, proceed = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        started.set()
        await asyncio.to_thread(proceed.wait)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    with hosting(app, settings=Settings(client_timeout_seconds=0.9)) as host, host.connection() as slow:
        slow.sendall(READ + LAST[:-1])
        assert started.wait(TIMEOUT)
        for _ in range(2):
            assert [status for status, _ in host.exchange(b"G")] == [408]
        slow.sendall(LAST[-1:])
        proceed.set()
        assert [status for status, _, _ in answers(slow)] == [200, 200]


def test_the_rest_of_a_body_that_was_answered_early_is_not_waited_for(hasty: Server) -> None:
    """The method is refused at once; bytes of a body that never ends do not keep the connection."""
    start = b"PUT /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    found = exchange(hasty, start)
    assert [status for status, _, _ in found] == [405]


def test_a_client_that_takes_nothing_of_its_responses_is_cut_off(classification: Synthetic) -> None:
    sent = 3000  # whose responses are more than all buffers on the way hold
    with running(classification.path, DEMUR_CLIENT_TIMEOUT_SECONDS="1") as server:
        counts = [(0.0, 0.0)]  # requests in flight and requests answered, at each scrape

        def is_cut_off() -> bool:
            text = server.request("GET", "/metrics")[2].decode()
            answered = metric(text, "demur_http_requests_total", route="/openapi.json")
            counts.append((metric(text, "demur_http_requests_in_flight"), answered))
            return counts[-1] == counts[-2] and counts[-1][0] == 1  # no more than the scrape itself

        with contextlib.closing(server.socket()) as connection:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(sent):
                    connection.send(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: is_cut_off() and counts[-1][1] > 0)
        assert counts[-1][1] < sent


def test_at_the_end_a_body_that_was_answered_early_is_not_waited_for(classification: Synthetic) -> None:
    """Also where the rest of it still comes."""
    with running(classification.path, DEMUR_SHUTDOWN_SECONDS="1000") as server:
        with contextlib.closing(server.socket()) as connection:
            connection.sendall(b"PUT /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + b"x" * 50)
            assert connection.recv(13) == b"HTTP/1.1 405 "
            server.process.terminate()
            server.wait_for("Shutting down")
            connection.sendall(b"x" * 50)
            while connection.recv(65536):
                pass
        assert server.process.wait(TIMEOUT) == 0


def test_the_server_is_well_afterwards(hasty: Server) -> None:
    assert hasty.request("POST", "/predict", BODY)[0] == 200
    assert not [line for line in hasty.lines if "Traceback" in line or "Exception" in line]
