"""Requests answered from their heads alone, over real sockets: among others on a connection, never out of turn."""

import contextlib
import json
import logging
from collections.abc import Iterator

import pytest
from fastapi import Response
from starlette.types import Receive, Scope, Send

from probity.service.connection.pacing import MAX_TINY_PIECES
from probity.service.settings import Settings
from tests.support.host import Host, hosting
from tests.support.sockets import answers

BODY = b"x" * 1000
REFUSED, SERVED = (429, b"no room"), (200, b"served")


def post(path: bytes, *fields: bytes, version: bytes = b"1.1") -> bytes:
    lines = (b"Host: x", b"Content-Length: %d" % len(BODY), *fields)
    return b"POST %s HTTP/%s\r\n%s\r\n\r\n" % (path, version, b"\r\n".join(lines))


FULL, FREE = post(b"/full") + BODY, post(b"/free") + BODY
LAST = post(b"/free", b"Connection: close") + BODY


class Recorder(list[tuple[str, int]]):
    """An application that records the path and the body size of each request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        self.append((scope["path"], size))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
        await send({"type": "http.response.body", "body": SERVED[1]})


def reject_early(path: str, headers: list[tuple[bytes, bytes]]) -> Response | None:
    assert (b"host", b"x") in headers
    return Response(REFUSED[1], REFUSED[0]) if path == "/full" else None


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def host(recorder: Recorder) -> Iterator[Host]:
    with hosting(recorder, reject_early) as started:
        yield started


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_connection_goes_on_after_an_early_rejection(host: Host, recorder: Recorder, step: int) -> None:
    whole = FULL + FREE + FULL + FULL + LAST
    found = host.exchange(*(whole[start : start + step] for start in range(0, len(whole), step)))
    assert recorder[0] == recorder[-1] == ("/free", len(BODY))
    assert found[:2] == [REFUSED, SERVED]
    assert found[-1] == SERVED
    assert len(found) == 5
    assert set(found) == {REFUSED, SERVED}
    assert found.count(SERVED) == len(recorder)  # while a response is due, the application is called
    assert host.state.total_requests == 5


def test_a_rejection_waits_for_earlier_responses(host: Host, recorder: Recorder) -> None:
    """So it is left to the application."""
    assert host.exchange(FREE + FULL + LAST) == [SERVED] * 3
    assert recorder == [("/free", len(BODY)), ("/full", len(BODY)), ("/free", len(BODY))]


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
def test_the_application_answers_where_more_is_needed(host: Host, recorder: Recorder, head: bytes) -> None:
    assert host.exchange(head + BODY) == [SERVED]
    assert recorder == [("/full", len(BODY))]


def test_a_client_that_expects_100_continue_gets_it(host: Host, recorder: Recorder) -> None:
    with host.connection() as connection:
        connection.sendall(post(b"/full", b"Expect: 100-continue", b"Connection: close"))
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert [(status, body) for status, _, body in answers(connection)] == [SERVED]


def test_the_access_log_has_a_line(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="uvicorn.access"):
        assert host.exchange(FULL + LAST) == [REFUSED, SERVED]
    refused, served = (record.getMessage() for record in caplog.records if record.name == "uvicorn.access")
    assert refused.endswith('- "POST /full HTTP/1.1" 429')
    assert served == refused.replace("full", "free").replace("429", "200")


def test_the_line_names_the_client_that_a_trusted_proxy_names(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    named = b"X-Forwarded-For: 192.0.2.1, 192.0.2.7"
    with caplog.at_level(logging.INFO, logger="uvicorn.access"):
        host.exchange(post(b"/full", named) + BODY + post(b"/free", named, b"Connection: close") + BODY)
    refused, served = (record.getMessage() for record in caplog.records if record.name == "uvicorn.access")
    assert refused.startswith("192.0.2.7:0 - ")
    assert served.startswith("192.0.2.7:0 - ")


def test_the_body_of_a_rejected_request_has_a_deadline(recorder: Recorder) -> None:
    with hosting(recorder, reject_early, Settings(header_timeout_seconds=0.3)) as host:
        assert host.exchange(post(b"/full")) == [REFUSED]
        assert host.exchange(post(b"/full"), BODY[:10]) == [REFUSED]
    assert recorder == []


def test_invalid_input_after_a_rejection_is_refused_in_turn(host: Host) -> None:
    refused, (status, body) = host.exchange(FULL + b"nonsense\r\n\r\n")
    assert (refused, status, json.loads(body)["code"]) == (REFUSED, 400, "http")


def test_a_client_that_takes_no_responses_is_not_read(host: Host) -> None:
    """No responses pile up in memory for a client that never reads them."""
    with host.connection() as connection:
        connection.setblocking(False)
        sent, piece = 0, post(b"/full").replace(b"%d" % len(BODY), b"0") * 1000
        with contextlib.suppress(BlockingIOError):
            while sent < 2**27:
                sent += connection.send(piece)
        assert sent < 2**27  # no more than the buffers of both systems hold


def test_many_pipelined_requests_are_all_answered(host: Host, recorder: Recorder) -> None:
    small = post(b"/free").replace(b"%d" % len(BODY), b"0")
    assert host.exchange(small * 2000 + LAST) == [SERVED] * 2001
    assert recorder == [("/free", 0)] * 2000 + [("/free", len(BODY))]


def test_a_failing_check_admits_the_request_and_is_logged(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    def fail(path: str, headers: list[tuple[bytes, bytes]]) -> Response | None:
        raise ZeroDivisionError(path)

    with hosting(recorder, fail) as host:
        assert host.exchange(FREE + LAST) == [SERVED, SERVED]
    assert "ZeroDivisionError: /free" in caplog.text


@pytest.mark.slow
def test_a_rejected_body_in_single_bytes_is_cut_off_quietly(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    with host.connection() as connection:
        connection.sendall(post(b"/full").replace(b"%d" % len(BODY), b"%d" % (2 * MAX_TINY_PIECES)))
        assert connection.recv(12) == b"HTTP/1.1 429"
        (protocol,) = host.state.connections

        def receive() -> None:
            for _ in range(MAX_TINY_PIECES + 1):
                protocol.data_received(b"x")

        protocol.loop.call_soon_threadsafe(receive)
        while connection.recv(65536):
            pass
    # Whether the line of a request is recorded depends on the level that other servers of this process left.
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
