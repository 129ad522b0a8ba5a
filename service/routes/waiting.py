"""Waiting for an answer, but not for longer than the client does."""

import asyncio
from types import TracebackType
from typing import Self

from fastapi import Request
from starlette.requests import ClientDisconnect

from service.web.departure import departure_of


class Connected:
    """`async with Connected(request):` what the block waits for is cancelled when the client goes away, and then it
    raises `ClientDisconnect`. The body must have been read.

    As `asyncio.timeout` does, it cancels the task that runs the block: a task of its own for the work would cost every
    request more than most of what else is done for it. So would one that listens, which only a server needs that does
    not tell of departures.
    """

    def __init__(self, request: Request) -> None:
        self._request, self._gone = request, False
        self._departure = departure_of(request.scope)
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        if self._departure is None:
            self._listening = asyncio.create_task(self._listen())
        elif self._departure.gone:
            raise ClientDisconnect
        else:
            self._departure.subscribe(self._leave)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._departure is not None:
            self._departure.unsubscribe(self._leave)
        if self._listening is not None:
            self._listening.cancel()
        if self._gone and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise ClientDisconnect from None

    async def _listen(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self._gone = True
        self._task.cancel()
