"""Reflection: the descriptions of the services here, which tools such as grpcurl ask for."""

from collections.abc import AsyncIterator
from typing import Any

from grpc_reflection.v1alpha import reflection

from ..http.problems import ProblemError
from .calls import Calls, Context
from .protocol import SERVICE, Protocol
from .servicer import HEALTH

PATH = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"


class Reflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]
    """For those who have a key where one is needed, and no longer than a message may take."""

    def __init__(self, calls: Calls, protocol: Protocol) -> None:
        super().__init__((SERVICE, HEALTH, reflection.SERVICE_NAME), pool=protocol.pool)
        self._calls = calls

    async def ServerReflectionInfo(self, requests: Any, context: Context) -> AsyncIterator[Any]:  # noqa: N802
        """An answer for each request."""
        exchange = await self._calls.exchange("POST", PATH, context)
        try:
            self._calls.check_key(exchange)
            async with self._calls.held(self._calls.seconds):
                async for response in super().ServerReflectionInfo(requests, context):
                    yield response
        except ProblemError as error:
            self._calls.refuse(error, exchange, context)
