"""The gRPC server: what it offers, how much it takes at once, and how it begins and ends."""

import asyncio
import logging
from typing import Any

import grpc
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection
from starlette.types import ASGIApp

from probity.service.rpc.health import HEALTH, Health
from probity.service.rpc.in_process import InProcess
from probity.service.rpc.protocol import SERVICE, Protocol
from probity.service.rpc.servicer import Servicer
from probity.service.runtime import Runtime
from probity.service.settings import Settings

# What gRPC itself takes by default. The messages of all calls are in memory before a call begins, as HTTP's bodies are
# not: so many calls of this size are a gigabyte.
MOST_BYTES, MOST_CALLS = 4 * 2**20, 256
access = logging.getLogger("uvicorn.access")


class RpcServer:
    """`port`: where it listens, once it has started."""

    def __init__(self, app: ASGIApp, runtime: Runtime, settings: Settings, running: set[asyncio.Task[None]]) -> None:
        """running: the tasks that answer, which whoever stops the service waits for."""
        self._settings, self.port = settings, 0
        http = InProcess(app, running, _log if settings.access_log else _no_log)
        described = descriptor_pb2.FileDescriptorProto()
        health_pb2.DESCRIPTOR.CopyToProto(described)
        protocol = Protocol([described])
        self._health = Health(http)
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=MOST_CALLS,
            options=[("grpc.max_receive_message_length", min(settings.max_body_bytes, MOST_BYTES))],
        )
        handlers = [Servicer(http, runtime, protocol).handler(), self._health.handler()]
        self._server.add_generic_rpc_handlers(handlers)
        reflection.enable_server_reflection(
            (SERVICE, HEALTH, reflection.SERVICE_NAME), self._server, pool=protocol.pool
        )

    async def start(self) -> None:
        """Listen; raises `OSError` where that is not possible. Several processes share the port."""
        host, port = self._settings.host, self._settings.grpc_port
        assert port is not None
        try:
            self.port = self._server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(f"cannot serve gRPC on {host}:{port}: {error}") from None
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Take no more calls, and let those that run end within `seconds`."""
        self._health.stop()
        await self._server.stop(seconds)


def _log(client: str, method: str, path: str, status: int) -> None:
    access.info('%s - "%s %s HTTP/%s" %d', client, method, path, "2", status)


def _no_log(*_: Any) -> None:
    """Write nothing."""
