"""The gRPC server: what it offers, how much it takes at once, and how it begins and ends."""

import asyncio
import os
from typing import Any, cast

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it writes to stderr beside the log, in a form of its own

import grpc
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from ..runtime import Runtime
from ..security.api_keys import KeyRing
from ..settings import Settings
from .health import HEALTH, Health
from .in_process import InProcess
from .protocol import SERVICE, Protocol
from .servicer import Servicer

MOST_BYTES = 4 * 2**20  # of a message: what gRPC itself takes by default
MOST_CALLS = 1024  # at once, those that wait among them
# Before the end, calls that still come are told to go elsewhere: gRPC itself would cancel them, and clients do not try
# again then.
TURN_AWAY_SECONDS = 0.5


class RpcServer:
    """`port`: where it listens, once it has started."""

    def __init__(
        self,
        app: ASGIApp,
        runtime: Runtime,
        settings: Settings,
        running: set[asyncio.Task[None]],
        keys: KeyRing | None = None,
    ) -> None:
        """running: the tasks that answer, which whoever stops the service waits for. keys: those of `app`."""
        self._settings, self.port = settings, 0
        # As uvicorn does over HTTP; its types are narrower than Starlette's.
        trusting = ProxyHeadersMiddleware(cast("Any", app), list(settings.trusted_proxies))
        http = InProcess(cast("ASGIApp", trusting), running)
        described = descriptor_pb2.FileDescriptorProto()
        health_pb2.DESCRIPTOR.CopyToProto(described)
        protocol = Protocol([described])
        most = min(settings.max_body_bytes, MOST_BYTES)
        self._servicer = Servicer(http, runtime, protocol, most, keys)
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=MOST_CALLS,
            options=[
                ("grpc.max_receive_message_length", most),
                ("grpc.so_reuseport", int(settings.workers > 1)),  # otherwise a second service would share the port
            ],
        )
        self._server.add_generic_rpc_handlers([self._servicer.handler(), Health(http).handler()])
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
        self._servicer.stopping = True
        await asyncio.sleep(min(TURN_AWAY_SECONDS, seconds))
        await self._server.stop(seconds)
