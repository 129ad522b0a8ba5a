"""Waiting for an answer, but not for longer than the client does."""

import asyncio
from types import TracebackType
from typing import Self

from fastapi import Request
from starlette.requests import ClientDisconnect

SOON_SECONDS = 0.01


class Connected:
    """`async with Connected(request):` what the block waits for is cancelled when the client goes away, and then it
    raises `ClientDisconnect`. The body must have been read.

    As `asyncio.timeout` does, it cancels the task that runs the block: a task of its own for the work would cost every
    request more than most of what else is done for it. So would one that listens, for a request that is answered soon:
    listening begins after `SOON_SECONDS`, and then learns of a client that left before.
    """

    def __init__(self, request: Request) -> None:
        self._request, self._gone = request, False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._listening: asyncio.TimerHandle | asyncio.Task[None]
        self._listening = asyncio.get_running_loop().call_later(SOON_SECONDS, self._begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listening.cancel()
        if self._gone and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise ClientDisconnect from None

    def _begin(self) -> None:
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._task.cancel()
