"""The gRPC server: what it offers, how much it takes at once, and how it begins and ends."""

import asyncio
import os
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it writes to stderr beside the log, in a form of its own

import grpc
from fastapi import FastAPI

from ..runtime import Runtime
from .calls import Calls
from .protocol import Protocol
from .servicer import Servicer

MOST_BYTES = 4 * 2**20  # of a message: what gRPC itself takes by default
MOST_STREAMS = 1024  # at once over one connection; the others stay with their client
IDLE_SECONDS = 75  # of a connection without a call, as over HTTP
# Before the end, calls that still come are told to go elsewhere: gRPC itself would cancel them, and clients do not try
# again then.
TURN_AWAY_SECONDS = 0.5


class RpcServer:
    """`port`: where it listens, once it has started."""

    def __init__(self, app: FastAPI, running: set[asyncio.Task[Any]], connections: int) -> None:
        """app: the service over HTTP, which runs. running: the tasks that answer, which whoever stops the service waits
        for. connections: so many at once."""
        runtime: Runtime = app.state.runtime
        settings = runtime.settings
        self._settings, self.port = settings, 0
        most = min(settings.max_body_bytes, MOST_BYTES)
        self._calls = Calls(app, running, most)
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_allowed_incoming_connections", connections),
                ("grpc.max_concurrent_streams", MOST_STREAMS),
                ("grpc.max_connection_idle_ms", 1000 * IDLE_SECONDS),
                ("grpc.max_receive_message_length", most),
                ("grpc.so_reuseport", int(settings.workers > 1)),  # otherwise a second service would share the port
            ],
        )
        self._server.add_generic_rpc_handlers(Servicer(runtime, Protocol(), app.version).handlers(self._calls))

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
        self._calls.waits.stop()
        await asyncio.sleep(min(TURN_AWAY_SECONDS, seconds))
        await self._server.stop(seconds)
