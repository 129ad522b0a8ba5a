"""`grpc.health.v1.Health`: what load balancers and Kubernetes ask, as `/health/ready` answers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from probity.service.rpc.in_process import InProcess
from probity.service.rpc.protocol import SERVICE

HEALTH = "grpc.health.v1.Health"
KNOWN = frozenset({"", SERVICE})
WATCH_SECONDS = 1.0
Response, Status = health_pb2.HealthCheckResponse, health_pb2.HealthCheckResponse


class Health:
    """Of the whole service, called "" or by the name of the inference service."""

    def __init__(self, http: InProcess) -> None:
        self._http, self._stopped = http, asyncio.Event()

    def handler(self) -> Any:
        """For `grpc.aio.Server.add_generic_rpc_handlers`."""
        codec = {
            "request_deserializer": health_pb2.HealthCheckRequest.FromString,
            "response_serializer": Response.SerializeToString,
        }
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, **codec),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, **codec),
        }
        return grpc.method_handlers_generic_handler(HEALTH, methods)

    def stop(self) -> None:
        """End what is watched."""
        self._stopped.set()

    async def _check(self, request: Any, context: Any) -> Any:
        if request.service not in KNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"found no service {request.service!r:.100}")
        return Response(status=await self._status())

    async def _watch(self, request: Any, _: Any) -> AsyncIterator[Any]:
        """The status, and each other one that follows, as the protocol has it."""
        known, last = request.service in KNOWN, None
        while not self._stopped.is_set():
            status = await self._status() if known else Status.SERVICE_UNKNOWN
            if status != last:
                yield Response(status=status)
            last = status
            try:
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._stopped.wait()
            except TimeoutError:
                continue
        yield Response(status=Status.NOT_SERVING)

    async def _status(self) -> int:
        reply = await self._http.ask("GET", "/health/ready", {})
        return int(Status.SERVING if reply.status == 200 else Status.NOT_SERVING)
