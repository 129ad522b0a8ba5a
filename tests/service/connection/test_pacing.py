"""Pacing: what a client sends takes no more than its share of the event loop, and no more memory."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from demur.service.connection.pacing import SLICE_BYTES, SLICES_PER_TURN, Pacer, is_dense
from demur.service.connection.protocol import LimitedProtocol
from demur.service.security.api_keys import new_key
from tests.support.bundles import Synthetic
from tests.support.flood import CHUNKED, TINY
from tests.support.health import checked_health
from tests.support.host import hosting
from tests.support.requests import GOOD
from tests.support.server import ROOT, TIMEOUT, running
from tests.support.sockets import answers

HEALTHY_SECONDS = 2.0  # on a busy machine; a few hundredths on an idle one


def in_chunks(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("keys", [False, True], ids=["open", "with API keys"])
def test_health_answers_while_chunks_of_one_byte_flood_in(
    classification: Synthetic, keys: bool, tmp_path: Path
) -> None:
    given = {"DEMUR_ACCESS_LOG": "false"}
    if keys:
        (tmp_path / "keys").write_text(f"{new_key('someone')[1].line}\n")
        given["DEMUR_API_KEYS_FILE"] = str(tmp_path / "keys")
    with running(classification.path, **given) as server:
        with checked_health(server.port) as health:
            flood = [sys.executable, "-m", "tests.support.flood", str(server.port)]
            subprocess.run(flood, cwd=ROOT, check=True, timeout=TIMEOUT)
        assert health.worst < HEALTHY_SECONDS
        assert server.terminate() == 0


def test_a_body_in_tiny_chunks_is_read_all_the_same(classification: Synthetic) -> None:
    body = b'{"inputs": %s}' % str(GOOD).encode() + b" " * 10_000
    with running(classification.path) as server, contextlib.closing(server.socket()) as connection:
        for size in (1, 3, 1000):
            connection.sendall(in_chunks(body, size))
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert [status for status, _, _ in answers(connection)] == [200, 200, 200, 200]


def test_a_body_of_too_many_tiny_chunks_is_refused(classification: Synthetic) -> None:
    with running(classification.path) as server, contextlib.closing(server.socket()) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(CHUNKED + TINY * 100_000)
        ((status, headers, body),) = answers(connection)
        assert (status, headers["connection"], json.loads(body)["code"]) == (413, "close", "tiny_chunks")


def test_the_rest_of_a_flood_that_was_refused_is_thrown_away(classification: Synthetic) -> None:
    with running(classification.path) as server, contextlib.closing(server.socket()) as connection:
        connection.sendall(CHUNKED.replace(b"POST", b"PUT") + TINY * 5000)
        assert [status for status, _, _ in answers(connection)] == [405]  # and then the connection is closed


def test_what_is_sent_ahead_of_an_answer_is_not_taken_in() -> None:
    """Requests and bodies stay with the client, except for what the buffers of both systems hold."""
    entered, proceed = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await asyncio.to_thread(proceed.wait)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    ahead = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n" + b"x" * 2**20
    with hosting(app) as host, host.connection() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert entered.wait(TIMEOUT)
        connection.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 2**27:
                sent += connection.send(ahead)
        (protocol,) = host.state.connections
        assert isinstance(protocol, LimitedProtocol)
        taken = len(protocol.cycle.body)
        proceed.set()  # before anything can fail: the application waits for it
        assert sent < 2**27
        assert taken <= SLICE_BYTES  # on a busy machine one slice is read before reading is paused


def test_what_counts_as_dense() -> None:
    assert not is_dense(1, 1)  # the end of a body
    assert not is_dense(16, 16)
    assert is_dense(17, 1000)
    assert not is_dense(17, 4096)


def test_turns_are_shared() -> None:
    async def try_it() -> None:
        pacer, calls, done = Pacer(), list[int](), asyncio.Event()

        def ask(i: int) -> None:
            calls.append(i)
            if len(calls) == 10 * SLICES_PER_TURN:
                done.set()
            else:
                pacer.request_turn(asking[i])

        asking = [lambda i=i: ask(i) for i in range(2 * SLICES_PER_TURN)]
        for each in asking:
            pacer.request_turn(each)
        closed = partial(pytest.fail, "its connection has ended")
        pacer.request_turn(closed)
        pacer.cancel(closed)
        await asyncio.wait_for(done.wait(), TIMEOUT)
        assert calls[: 2 * len(asking)] == 2 * [*range(len(asking))]

    asyncio.run(try_it())
