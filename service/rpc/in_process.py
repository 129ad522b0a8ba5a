"""Requests to the HTTP application without a connection: what other protocols ask passes all that HTTP does."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.types import ASGIApp, Message

from ..http.arrival import ARRIVAL
from ..http.disconnect import DisconnectEvent
from ..http.errors import CLIENT_GONE

Headers = Mapping[str, str]


@dataclass
class Reply:
    """An answer; names of headers in lower case."""

    status: int = HTTPStatus.INTERNAL_SERVER_ERROR
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class InProcess:
    """Asks `app`, which runs. `running`: the tasks that answer, which whoever stops the service waits for."""

    def __init__(self, app: ASGIApp, running: set[asyncio.Task[None]]) -> None:
        self._app, self._running = app, running

    async def ask(
        self, method: str, path: str, headers: Headers, body: bytes = b"", client: str = "", **extensions: Any
    ) -> Reply:
        """The answer. A caller that is cancelled is a client that has left. extensions: of the scope."""
        event, reply = DisconnectEvent(), Reply()
        scope, stream = _scope(method, path, headers, client, event), _Stream(body, event)
        scope["extensions"] |= extensions
        task = asyncio.get_running_loop().create_task(self._run(scope, stream, reply))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            reply.status = CLIENT_GONE
            event.set()
            raise
        finally:
            stream.drop()
        return reply

    async def _run(self, scope: dict[str, Any], stream: "_Stream", reply: Reply) -> None:
        pieces: list[bytes] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {name.decode("latin-1").lower(): v.decode("latin-1") for name, v in message["headers"]}
            else:
                pieces.append(message.get("body", b""))

        await self._app(scope, stream.receive, send)
        reply.body = b"".join(pieces)


class _Stream:
    """The body, and then nothing until the client leaves."""

    def __init__(self, body: bytes, event: DisconnectEvent) -> None:
        self._body: bytes | None = body
        self._event = event

    def drop(self) -> None:
        """Nobody reads the body any more; what is left of the request may live on for a while."""
        self._body = None

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        gone = asyncio.Event()
        self._event.subscribe(gone.set)
        try:
            if not self._event.is_set:
                await gone.wait()
        finally:
            self._event.unsubscribe(gone.set)
        return {"type": "http.disconnect"}


def _scope(method: str, path: str, headers: Headers, client: str, event: DisconnectEvent) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "2",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path).encode("ascii"),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode(errors="surrogateescape")) for name, value in headers.items()],
        "client": (client, 0),
        "server": None,
        "extensions": {ARRIVAL: {"at": asyncio.get_running_loop().time()}, **event.extensions},
    }
