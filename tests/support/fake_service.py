"""Call both clients the same way, against a fake service whose time passes only in sleeps."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import httpx

from demur.service.client import AsyncClient, Client, Clocks

URL = "http://service.test"
NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT
KINDS = ("sync", "async")
Reply = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]
DIGEST = "0" * 64
TIMING = {"decode_seconds": 0.1, "queue_seconds": 0.2, "compute_seconds": 0.3}
ANSWER = {"id": "a1", "model": {"name": "m", "version": "1", "digest": DIGEST}, "predictions": [], "timing": TIMING}


def ask(kind: str, method: str, *arguments: Any, options: dict[str, Any], url: str = URL, **named: Any) -> Any:
    """Call a method of a new client of this kind."""
    if kind == "sync":
        with Client(url, **options) as client:
            return getattr(client, method)(*arguments, **named)
    return asyncio.run(ask_async(method, *arguments, options=options, url=url, **named))


async def ask_async(method: str, *arguments: Any, options: dict[str, Any], url: str = URL, **named: Any) -> Any:
    async with AsyncClient(url, **options) as client:
        return await getattr(client, method)(*arguments, **named)


class World:
    """A service that gives these replies in turn, and records its requests and the client's sleeps."""

    def __init__(self, kind: str, replies: Iterable[Reply], chance: float = 0.5) -> None:
        self.kind, self.replies = kind, list(replies)
        self.now, self.chance = 0.0, chance
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []

    def reply(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, httpx.Response) else reply(request)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def sleep_async(self, seconds: float) -> None:
        self.sleep(seconds)

    def ask(self, method: str = "predict", *arguments: Any, options: Any = None, **named: Any) -> Any:
        clocks = Clocks(lambda: self.now, lambda: NOW + self.now, lambda: self.chance)
        own = {
            "transport": httpx.MockTransport(self.reply),
            "clocks": clocks,
            "sleep": self.sleep if self.kind == "sync" else self.sleep_async,
        }
        given = arguments or ([[1.0]],) if method == "predict" else arguments
        return ask(self.kind, method, *given, options=own | (options or {}), **named)


def ok(document: Any = ANSWER, **headers: str) -> httpx.Response:
    return httpx.Response(200, json=document, headers=headers)


def refusing(status: int, **headers: str | bytes) -> httpx.Response:
    """A refusal as the service writes it; `a_b` is sent as the header `a-b`."""
    named = {
        name.replace("_", "-").encode(): value.encode() if isinstance(value, str) else value
        for name, value in headers.items()
    }
    document = {"title": "No", "status": status, "code": "no", "detail": "Not so.", "field": "inputs", "found": "'x'"}
    return httpx.Response(status, json=document, headers={b"content-type": b"application/problem+json", **named})
