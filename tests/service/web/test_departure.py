"""A client that goes is noticed by its connection: what waits for it is given up, and its rows leave the queue."""

import asyncio
import contextlib
import json

import pytest
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Message, Scope

from service.bundle import read_bundle
from service.routes.waiting import Connected
from service.settings import Settings
from service.web.departure import Departure, departure_of
from tests.support.bundles import Synthetic
from tests.support.client import serving
from tests.support.host import listening
from tests.support.metrics import metric
from tests.support.requests import GOOD
from tests.support.slow import TIMEOUT, Slow

BODY = json.dumps({"inputs": GOOD}).encode()
WHOLE = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
UVLOOP = {"use_uvloop": True}  # as in production: its closed connections cannot be written to
CLIENT_GONE = {"route": "/predict", "status": "499"}


def test_whoever_wants_to_know_is_told_once() -> None:
    departure, told = Departure(), list[str]()
    departure.subscribe(lambda: told.append("first"))
    forgotten = lambda: told.append("forgotten")  # noqa: E731  to be taken back
    departure.subscribe(forgotten)
    departure.unsubscribe(forgotten)
    departure.announce()
    departure.announce()
    assert told == ["first"]
    assert departure.gone


def test_it_is_found_in_the_scope_where_the_server_tells() -> None:
    departure = Departure()
    assert departure_of({"extensions": departure.extensions}) is departure
    assert departure_of({"extensions": {"http.response.debug": {}}}) is None
    assert departure_of({}) is None


async def hear(told: bool) -> None:
    """Wait for ever for a client that goes."""
    departure, gone = Departure(), asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    scope: Scope = {"type": "http", "extensions": departure.extensions if told else {}}
    waiting = asyncio.Event()

    async def wait() -> None:
        async with Connected(Request(scope, receive)):
            waiting.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await waiting.wait()
    departure.announce() if told else gone.set()
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(ClientDisconnect):
            await task
    assert not task.cancelling()


@pytest.mark.parametrize("told", [True, False], ids=["told", "by listening"])
def test_what_waits_for_a_client_that_goes_is_given_up(told: bool) -> None:
    asyncio.run(hear(told))


def test_one_who_left_before_is_not_waited_for() -> None:
    departure = Departure()
    departure.announce()

    async def wait() -> None:
        async with Connected(Request({"type": "http", "extensions": departure.extensions})):
            await asyncio.Event().wait()

    with pytest.raises(ClientDisconnect):
        asyncio.run(wait())


def test_one_who_leaves_with_several_questions_open_is_no_error(classification: Synthetic) -> None:
    """What runs is the first of them: it ends as gone, and not in a line that nobody reads any more."""
    slow = Slow(read_bundle(classification.path))
    with (
        serving(slow, Settings(), UVLOOP) as client,
        client.portal.wrap_async_context_manager(listening(client.app, Settings(), lambda path, headers: None)) as host,
    ):
        with host.connection() as leaving:
            leaving.sendall(WHOLE * 3)
            assert slow.entered.acquire(timeout=TIMEOUT)
        for _ in range(10_000):
            text = client.get("/metrics").text
            if metric(text, "probity_http_requests_total", route="/predict"):
                break
        slow.proceed.set()
        assert metric(text, "probity_http_requests_total", **CLIENT_GONE) == 1
        assert metric(text, "probity_errors_total") == metric(text, "probity_errors_total", reason="gone") == 1


def test_its_rows_leave_the_queue(classification: Synthetic) -> None:
    slow = Slow(read_bundle(classification.path))
    with (
        serving(slow, Settings(), UVLOOP) as client,
        client.portal.wrap_async_context_manager(listening(client.app, Settings(), lambda path, headers: None)) as host,
        contextlib.ExitStack() as stack,
    ):

        def wait_for(value: float, name: str, /, **labels: str) -> None:
            for _ in range(10_000):
                if metric(client.get("/metrics").text, name, **labels) == value:
                    return
            pytest.fail(f"{name} never became {value}")

        first = stack.enter_context(host.connection())
        first.sendall(WHOLE)
        assert slow.entered.acquire(timeout=TIMEOUT)
        with host.connection() as leaving:
            leaving.sendall(WHOLE)
            wait_for(1, "probity_queue_rows")
        wait_for(0, "probity_queue_rows")
        wait_for(1, "probity_http_requests_total", **CLIENT_GONE)
        slow.proceed.set()
        assert first.recv(12) == b"HTTP/1.1 200"
