"""The uvicorn server, with the signals of a container: SIGTERM drains and the process exits 0."""

import asyncio
import contextlib
import copy
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from service.app import create_app
from service.models.loading import load_named
from service.runtime import Runtime
from service.session import share_memory
from service.settings import Settings
from service.web.door import Door
from service.web.protocol import limited_protocol

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Longer than the minute for which load balancers commonly keep idle connections: the side that closes first must be
# theirs, or they send a request into a connection that has just gone.
KEEP_ALIVE_SECONDS = 75
GARBAGE_OBJECTS = 10_000
# How long a thread that computes, or the event loop, may keep Python's lock while the other wants it. The default of
# 5 ms is several times as long as a small network computes, and each of them needs the lock several times a batch.
SWITCH_SECONDS = 0.0005


class Server(uvicorn.Server):
    """uvicorn raises a captured signal again after shutting down, so an orderly stop looks like a crash. Not here.

    On SIGTERM readiness fails at once; requests are accepted for `drain_seconds` more, until the load balancer has
    noticed; then nothing new is accepted, what runs is finished, and the process ends. SIGINT, and a second signal, do
    not wait. `alive` is called when requests are accepted, and about every second from then on.
    """

    def __init__(
        self, config: uvicorn.Config, drain_seconds: float = 0.0, alive: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self.drain_seconds, self.alive = drain_seconds, alive
        self._event_loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        self._event_loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Load what is loaded late, and accept requests."""
        await super().startup(sockets)
        _spare_the_garbage_collector()
        self.alive()

    async def on_tick(self, counter: int) -> bool:
        """uvicorn calls it ten times a second. Where nothing is computed any more, there is no sign of life."""
        runtime = _runtime(self.config.app)
        if counter % 10 == 0 and (runtime is None or runtime.alive):
            self.alive()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing new, but what the kernel has accepted already: closing the socket would reset it, and with it
        requests that were sent in good faith."""
        waiting = [connection for server in self.servers for connection in _not_taken_yet(server)]
        for server in self.servers:
            server.close()
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        kind: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM while serving; afterwards the process goes on to its normal end."""
        previous = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Readiness turns to 503 at once, for clients that keep their connection; then drain."""
        runtime = _runtime(self.config.app)
        first = runtime is not None and not runtime.draining
        if runtime is not None:
            runtime.draining = True
        if first and self.drain_seconds and sig == signal.SIGTERM and self._event_loop is not None:
            # A signal's handler runs between any two instructions: only this call is safe there.
            self._event_loop.call_soon_threadsafe(self._stop_later, sig)
        else:
            super().handle_exit(sig, frame)

    def _stop_later(self, sig: int) -> None:
        asyncio.get_running_loop().call_later(self.drain_seconds, super().handle_exit, sig, None)


def _spare_the_garbage_collector() -> None:
    """What is there now stays, and what a request makes mostly ends with it: looking through all of that again and
    again takes a good part of the time that requests do, and once in a while as long as many of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 10, 10)


def _not_taken_yet(server: asyncio.Server) -> Iterator[socket.socket]:
    """The connections that wait in a listening socket."""
    for listening in server.sockets:
        with socket.socket(fileno=os.dup(listening.fileno())) as listener:
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    yield listener.accept()[0]


def _runtime(app: Any) -> Runtime | None:
    """What the app holds while it runs; None before."""
    return getattr(app.state, "runtime", None)


def build_server(settings: Settings, alive: Callable[[], None] = lambda: None) -> Server:
    """Load the bundles and prepare the HTTP server."""
    sys.setswitchinterval(SWITCH_SECONDS)
    share_memory()
    predictors = load_named(settings)
    app = create_app(predictors, settings)

    def count_refusal(code: str) -> None:
        runtime = _runtime(app)
        if runtime is not None:
            runtime.metrics.errors.labels(code).inc()

    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="auto",  # uvloop, where there is one
        http=limited_protocol(settings, count_refusal, Door(app).turns_away),
        ws="none",
        workers=1,
        log_config=log_config(settings),
        log_level=settings.log_level,
        access_log=settings.access_log,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        server_header=False,
    )
    return Server(config, settings.drain_seconds, alive)


def log_config(settings: Settings) -> dict[str, Any]:
    """uvicorn's logging, and the service's own messages beside it."""
    config = copy.deepcopy(LOGGING_CONFIG)
    config["loggers"]["probity"] = {"handlers": ["default"], "level": settings.log_level.upper()}
    return config
