"""Requests to an application without a connection: what it sees, and how it learns that nobody waits any more."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from demur.service.http.disconnect import CancelOnDisconnect
from demur.service.rpc.in_process import InProcess, Reply


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """What came, and the key as the bytes that were sent."""
    request = Request(scope, receive)
    key = request.headers["x-api-key"].encode("latin-1").decode()
    body = f"{request.method} {request.url.path} {key} {(await request.body()).decode()}"
    await Response(body, 201, {"X-Own": "yes"})(scope, receive, send)


def test_an_application_gets_all_that_is_sent() -> None:
    running: set[asyncio.Task[None]] = set()

    async def test() -> Reply:
        ours = InProcess(echo, running)
        return await ours.ask("POST", "/a b", {"X-API-Key": "é✓"}, b"body", "1.2.3.4")

    reply = asyncio.run(test())
    assert (reply.status, reply.body.decode(), reply.headers["x-own"]) == (201, "POST /a b é✓ body", "yes")
    assert running == set()


@pytest.mark.parametrize("reads", [True, False])
def test_who_is_cancelled_has_left(reads: bool) -> None:
    ended = list[str]()

    async def waits(scope: Any, receive: Any, _: Any) -> None:
        request = Request(scope, receive)
        await request.body()
        if reads:
            ended.append((await receive())["type"])
            return
        try:
            async with CancelOnDisconnect(request):
                await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def test() -> None:
        running: set[asyncio.Task[None]] = set()
        ask = asyncio.create_task(InProcess(waits, running).ask("POST", "/", {}))
        while not running:
            await asyncio.sleep(0)
        (task,) = running
        for _ in range(3):
            await asyncio.sleep(0)
        ask.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ask
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(test())
    assert ended == ["http.disconnect" if reads else "cancelled"]
