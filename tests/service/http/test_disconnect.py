"""A client that disconnects: the work for it is cancelled, and its rows leave the queue."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from functools import partial

import pytest
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from demur.service.batching.errors import SLOW_SECONDS
from demur.service.bundle import read_bundle
from demur.service.http.disconnect import CancelOnDisconnect, DisconnectEvent, disconnect_event
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import serving
from tests.support.host import hosting, listening
from tests.support.metrics import metric
from tests.support.processes import wait_until
from tests.support.requests import GOOD
from tests.support.slow import TIMEOUT, Slow

BODY = json.dumps({"inputs": GOOD}).encode()
WHOLE = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
UVLOOP = {"use_uvloop": True}  # as in production: its closed connections cannot be written to
CLIENT_GONE = {"route": "/predict", "status": "499"}


def test_subscribers_are_called_once() -> None:
    event, called = DisconnectEvent(), list[str]()
    unsubscribed = partial(called.append, "unsubscribed")
    event.subscribe(partial(called.append, "subscribed"))
    event.subscribe(unsubscribed)
    event.unsubscribe(unsubscribed)
    event.set()
    event.set()
    assert called == ["subscribed"]
    assert event.is_set


def test_the_event_comes_from_the_scope_where_the_server_provides_one() -> None:
    event = DisconnectEvent()
    assert disconnect_event({"extensions": event.extensions}) is event
    assert disconnect_event({"extensions": {"http.response.debug": {}}}) is None
    assert disconnect_event({}) is None


async def wait_for_disconnect(with_event: bool) -> None:
    event, gone = DisconnectEvent(), asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    scope: Scope = {"type": "http", "extensions": event.extensions if with_event else {}}
    waiting = asyncio.Event()

    async def wait() -> None:
        async with CancelOnDisconnect(Request(scope, receive)):
            waiting.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await waiting.wait()
    event.set() if with_event else gone.set()
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(ClientDisconnect):
            await task
    assert not task.cancelling()


@pytest.mark.parametrize("with_event", [True, False], ids=["event", "receive"])
def test_the_work_for_a_client_that_disconnects_is_cancelled(with_event: bool) -> None:
    asyncio.run(wait_for_disconnect(with_event))


def test_no_work_begins_for_a_client_that_is_gone() -> None:
    event = DisconnectEvent()
    event.set()

    async def wait() -> None:
        async with CancelOnDisconnect(Request({"type": "http", "extensions": event.extensions})):
            await asyncio.Event().wait()

    with pytest.raises(ClientDisconnect):
        asyncio.run(wait())


def test_a_client_that_leaves_with_several_open_requests_is_no_error(classification: Synthetic) -> None:
    """The first of them is running: it ends as 499, and not with an exception in the log."""
    slow = Slow(read_bundle(classification.path))
    with (
        serving(slow, Settings(), UVLOOP) as client,
        client.portal.wrap_async_context_manager(listening(client.app, Settings())) as host,
    ):
        with host.connection() as leaving:
            leaving.sendall(WHOLE * 3)
            assert slow.entered.acquire(timeout=TIMEOUT)
        wait_until(lambda: metric(client.get("/metrics").text, "demur_http_requests_total", route="/predict") > 0)
        text = client.get("/metrics").text
        slow.proceed.set()
        assert metric(text, "demur_http_requests_total", **CLIENT_GONE) == 1
        assert metric(text, "demur_errors_total") == metric(text, "demur_errors_total", reason="gone") == 1


def test_its_rows_leave_the_queue(classification: Synthetic) -> None:
    slow = Slow(read_bundle(classification.path))
    with (
        serving(slow, Settings(), UVLOOP) as client,
        client.portal.wrap_async_context_manager(listening(client.app, Settings())) as host,
        contextlib.ExitStack() as stack,
    ):

        def wait_for(value: float, name: str, /, **labels: str) -> None:
            wait_until(lambda: metric(client.get("/metrics").text, name, **labels) == value)

        first = stack.enter_context(host.connection())
        first.sendall(WHOLE)
        assert slow.entered.acquire(timeout=TIMEOUT)
        with host.connection() as leaving:
            leaving.sendall(WHOLE)
            wait_for(1, "demur_queue_rows")
        wait_for(0, "demur_queue_rows")
        wait_for(1, "demur_http_requests_total", **CLIENT_GONE)
        slow.proceed.set()
        assert first.recv(12) == b"HTTP/1.1 200"


def test_who_has_waited_for_long_leaves_a_slow_service(classification: Synthetic) -> None:
    slow = Slow(read_bundle(classification.path))
    with (
        serving(slow, Settings(), UVLOOP) as client,
        client.portal.wrap_async_context_manager(listening(client.app, Settings())) as host,
        host.connection() as first,
    ):

        def is_at_least(value: float, name: str, /, **labels: str) -> bool:
            return metric(client.get("/metrics").text, name, **labels) >= value

        first.sendall(WHOLE)
        assert slow.entered.acquire(timeout=TIMEOUT)
        with host.connection() as leaving:
            leaving.sendall(WHOLE)
            wait_until(partial(is_at_least, 1, "demur_queue_rows"))
            arrived = time.monotonic()
            wait_until(lambda: time.monotonic() > arrived + SLOW_SECONDS)
        wait_until(partial(is_at_least, 1, "demur_http_requests_total", **CLIENT_GONE))
        slow.proceed.set()
        assert first.recv(12) == b"HTTP/1.1 200"
        text = client.get("/metrics").text
        assert metric(text, "demur_errors_total") == metric(text, "demur_errors_total", reason="gone_slow") == 1


@pytest.mark.parametrize("how", [socket.SHUT_WR, socket.SHUT_RDWR])
def test_a_client_that_closes_its_sending_side_is_gone(how: int) -> None:
    """What it asked for is cancelled, and the connection ends."""
    asked, left = threading.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "http.disconnect":
            asked.set()
        assert message == {"type": "http.disconnect"}
        left.set()

    with hosting(app) as host, host.connection() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.wait(TIMEOUT)
        connection.shutdown(how)
        assert left.wait(TIMEOUT)
        assert connection.recv(1) == b""
