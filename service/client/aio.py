"""The asynchronous client."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Unpack

import httpx

from ..schemas import FeedbackResponse, ModelVersion, PredictResponse
from .calls import (
    Asked,
    Call,
    File,
    Inputs,
    T,
    card_call,
    feedback_call,
    health_call,
    images_call,
    metrics_call,
    models_call,
    predict_call,
)
from .connection import Connection
from .errors import DemurError
from .retrying import Clocks, Tries


class AsyncClient:
    """`Client` for asyncio: the same arguments, methods and errors. Use it with `async with`, or `aclose` it.

    Use it in one event loop only.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
        clocks: Clocks | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._connection, self._sleep = Connection(base_url, api_key, timeout, retries, clocks), sleep
        self._http = self._connection.client(httpx.AsyncClient, transport)

    async def predict(self, inputs: Inputs, *, timeout: float | None = None, **asked: Unpack[Asked]) -> PredictResponse:
        """As `Client.predict`; raises the same."""
        return await self._ask(predict_call(inputs, asked), timeout)

    async def predict_images(
        self, files: File | Iterable[File], *, timeout: float | None = None, **asked: Unpack[Asked]
    ) -> PredictResponse:
        """As `Client.predict_images`; raises the same. The files are read in a thread."""
        return await self._ask(await asyncio.to_thread(images_call, files, asked), timeout)

    async def feedback(
        self,
        answer: PredictResponse | str,
        *,
        labels: Sequence[str | int | Sequence[str | int] | None] | None = None,
        values: Sequence[float | Sequence[float] | None] | None = None,
        timeout: float | None = None,
    ) -> FeedbackResponse:
        """As `Client.feedback`; raises the same."""
        return await self._ask(feedback_call(answer, labels, values), timeout)

    async def ready(self) -> bool:
        """As `Client.ready`; raises the same."""
        return await self._ask(health_call("ready"))

    async def live(self) -> bool:
        """As `Client.live`; raises the same."""
        return await self._ask(health_call("live"))

    async def models(self) -> list[ModelVersion]:
        """As `Client.models`; raises the same."""
        return await self._ask(models_call())

    async def card(self, model: str | None = None, version: str | None = None) -> dict[str, Any]:
        """As `Client.card`; raises the same."""
        return await self._ask(card_call(model, version))

    async def metrics(self) -> str:
        """As `Client.metrics`; raises the same."""
        return await self._ask(metrics_call())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _ask(self, call: Call[T], timeout: float | None = None) -> T:
        tries = self._connection.tries(timeout)
        while True:
            try:
                return await self._try(call, tries)
            except DemurError as error:
                pause = tries.pause_after(error)
                if pause is None:
                    raise
                await self._sleep(pause)
                if tries.over:
                    raise

    async def _try(self, call: Call[T], tries: Tries) -> T:
        request = self._connection.request(self._http, call, tries)
        with self._connection.failures():
            async with asyncio.timeout(tries.remaining):
                response = await self._http.send(request)
        return self._connection.result(call, response, response.content)
