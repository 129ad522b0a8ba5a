"""Clients that disconnect: how a request learns of it, and how the work for it is cancelled.

In plain ASGI a request has to await `receive` until it returns `http.disconnect`, which takes a task per request that
only waits. This server puts a `DisconnectEvent` into the scope instead.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from ..batching.errors import CancelledWhileSlow

EXTENSION = "demur.disconnect"
Callback = Callable[[], None]


class ClientGaveUp(ClientDisconnect):
    """The client has disconnected from a service that was slow."""


async def _nothing_written() -> None:
    """Return at once: nothing is written before the connection is made."""


class DisconnectEvent:
    """The end of one connection. `extensions` goes into the ASGI scopes of its requests.

    `drain` returns once the client has taken all but a small rest of what was written, or has disconnected.
    """

    def __init__(self) -> None:
        self.is_set = False
        self.drain: Callable[[], Awaitable[None]] = _nothing_written
        self.extensions: dict[str, dict[object, object]] = {EXTENSION: {"event": self}}
        self._callbacks: set[Callback] = set()

    def subscribe(self, callback: Callback) -> None:
        """Call `callback` when the client disconnects; check `is_set` first, as past events are not repeated."""
        self._callbacks.add(callback)

    def unsubscribe(self, callback: Callback) -> None:
        """Do not call `callback` any more."""
        self._callbacks.discard(callback)

    def set(self) -> None:
        """The client has disconnected: call every subscriber once."""
        self.is_set = True
        while self._callbacks:
            self._callbacks.pop()()


def disconnect_event(scope: Scope) -> DisconnectEvent | None:
    """The event of the request's connection; None on servers that do not provide one."""
    event: DisconnectEvent | None = scope.get("extensions", {}).get(EXTENSION, {}).get("event")
    return event


async def response_taken(scope: Scope) -> None:
    """Wait until the client has taken the response or has disconnected; without a `DisconnectEvent`, do not wait."""
    event = disconnect_event(scope)
    if event is not None:
        await event.drain()


class CancelOnDisconnect:
    """`async with CancelOnDisconnect(request):` cancels the block when the client disconnects.

    Then it raises `ClientDisconnect`, or `ClientGaveUp`. The body must have been read. Like `asyncio.timeout`, it
    cancels the task that runs the block: a separate task for the work would cost a request more than most of what is
    done for it. Only without a `DisconnectEvent` does it start a task, which waits for `http.disconnect`.
    """

    def __init__(self, request: Request) -> None:
        self._request, self._disconnected = request, False
        self._event = disconnect_event(request.scope)
        self._receiving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        if self._event is None:
            self._receiving = asyncio.create_task(self._receive())
        elif self._event.is_set:
            raise ClientDisconnect
        else:
            self._event.subscribe(self._cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._event is not None:
            self._event.unsubscribe(self._cancel)
        if self._receiving is not None:
            self._receiving.cancel()
        if self._disconnected and self._task.uncancel() <= self._cancelling and kind is not None:
            if issubclass(kind, CancelledWhileSlow):
                raise ClientGaveUp from None
            if kind is asyncio.CancelledError:
                raise ClientDisconnect from None

    async def _receive(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._cancel()

    def _cancel(self) -> None:
        self._disconnected = True
        self._task.cancel()
