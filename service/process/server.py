"""The uvicorn server, with the signals of a container: SIGTERM drains and the process exits 0."""

import asyncio
import contextlib
import copy
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from service.app import create_app
from service.inference.session import share_memory
from service.models.loading import load_named
from service.monitoring.metrics import several_processes
from service.process.ending import Ending, end_now
from service.process.listening import OutOfHandles, accept_waiting, refuse_new_connections
from service.process.metrics_files import reserve_room_for_metrics
from service.runtime import Runtime
from service.settings import Settings
from service.web.door import Door
from service.web.protocol import limited_protocol

log = logging.getLogger("probity")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Longer than the minute for which load balancers commonly keep idle connections: the side that closes first must be
# theirs, or they send a request into a connection that has just gone.
KEEP_ALIVE_SECONDS = 75
# How long a handshake that was begun may take to be completed, when the service stops.
HANDSHAKE_SECONDS = 0.25
# How long to wait for the word that the other workers stop too.
OTHERS_SECONDS = 1.0
# How long idle connections may take to make room for those that wait without a file handle.
ROOM_SECONDS = 3.0
# What everything takes at the end beside the time to drain and to finish; then the process is ended by force.
END_SECONDS = 7.0
LOADING_SECONDS = 2.0
GARBAGE_OBJECTS = 10_000
# How long a thread that computes, or the event loop, may keep Python's lock while the other wants it. The default of
# 5 ms is several times as long as a small network computes, and each of them needs the lock several times a batch.
SWITCH_SECONDS = 0.0005


class Server(uvicorn.Server):
    """uvicorn raises a captured signal again after shutting down, so an orderly stop looks like a crash. Not here.

    On SIGTERM readiness fails at once; requests are accepted for `drain_seconds` more, until the load balancer has
    noticed; then nothing new is accepted, what runs is finished, and the process ends. SIGINT does not wait. A second
    SIGTERM changes nothing: where every process of a group is sent one, a worker has its own and that of its parent.

    `alive` is called when requests are accepted, and about every second from then on. `all_stop` tells whether nobody
    else goes on accepting from the listening sockets; `ending` sees to it that the process ends in time.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain_seconds: float = 0.0,
        alive: Callable[[], None] = lambda: None,
        all_stop: Callable[[], bool] = lambda: True,
        ending: Ending | None = None,
    ) -> None:
        super().__init__(config)
        self.drain_seconds, self.alive, self._all_stop, self._ending = drain_seconds, alive, all_stop, ending
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._told_to_stop = False

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop. What then still runs in threads is not waited for."""
        super().run(sockets)
        runtime = _runtime(self.config.app)
        if self._ending is not None and runtime is not None and runtime.workers.oldest_seconds:
            log.error("A batch was still computed at the end and is left behind")
            end_now(self._ending.status)

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
        if counter % 10 == 0:
            runtime = _runtime(self.config.app)
            if runtime is not None:
                runtime.look_at_the_computation()
            if runtime is None or runtime.alive:
                self.alive()
        # uvloop accepts one connection a round: under load, those that wait for theirs would wait for seconds.
        await self._take_what_waits()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing new, but every connection that was made: closing the socket would reset it, and with it
        requests that were sent in good faith."""
        await self._end_handshakes()
        await self._take_the_last()
        await super().shutdown(sockets)
        if self._ending is not None:  # everything is answered; what still loads may hang
            self._ending.expect(LOADING_SECONDS)

    async def _end_handshakes(self) -> None:
        """Where others go on accepting, nothing is lost with this process."""
        loop = asyncio.get_running_loop()
        end = loop.time() + OTHERS_SECONDS
        while not self._all_stop():
            if loop.time() > end:
                return
            await asyncio.sleep(HANDSHAKE_SECONDS / 10)
        for listener in self._listeners():
            refuse_new_connections(listener)
        await asyncio.sleep(HANDSHAKE_SECONDS)

    async def _take_the_last(self) -> None:
        """Where there is no file handle for a connection, the idle ones are asked to make room."""
        loop = asyncio.get_running_loop()
        end, asked = loop.time() + ROOM_SECONDS, False
        while not await self._take_what_waits() and loop.time() < end:
            if not asked:
                log.error("No file handle is left for connections that wait; idle ones are closed")
                for connection in list(self.server_state.connections):
                    connection.shutdown()
                asked = True
            await asyncio.sleep(0.05)
        for server in self.servers:
            server.close()

    async def _take_what_waits(self) -> bool:
        """Whether that was all."""
        waiting = list[socket.socket]()
        complete = True
        try:
            for listener in self._listeners():
                waiting.extend(accept_waiting(listener))
        except OutOfHandles:
            complete = False
        loop = asyncio.get_running_loop()
        made = (loop.connect_accepted_socket(self._protocol, connection) for connection in waiting)
        for failure in await asyncio.gather(*made, return_exceptions=True):
            if isinstance(failure, BaseException):
                log.warning("A connection was accepted and could not be served: %s", failure)
        return complete

    def _listeners(self) -> list[int]:
        return [listening.fileno() for server in self.servers for listening in server.sockets]

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
        if runtime is None and self._ending is not None:  # models are loaded yet, which may take for ever
            end_now(self._ending.status)
        first, self._told_to_stop = not self._told_to_stop, True
        if sig == signal.SIGTERM and not first:
            return
        if runtime is not None:
            runtime.draining = True
        if self.drain_seconds and sig == signal.SIGTERM and self._event_loop is not None:
            self._expect_the_end(self.drain_seconds + (self.config.timeout_graceful_shutdown or 0))
            # A signal's handler runs between any two instructions: only this call is safe there.
            self._event_loop.call_soon_threadsafe(self._stop_later, sig)
        else:
            self._expect_the_end(self.config.timeout_graceful_shutdown or 0)
            super().handle_exit(sig, frame)

    def _expect_the_end(self, seconds: float) -> None:
        if self._ending is not None:
            self._ending.expect(seconds + END_SECONDS)

    def _stop_later(self, sig: int) -> None:
        asyncio.get_running_loop().call_later(self.drain_seconds, super().handle_exit, sig, None)


def _spare_the_garbage_collector() -> None:
    """What is there now stays, and what a request makes mostly ends with it: looking through all of that again and
    again takes a good part of the time that requests do, and once in a while as long as many of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 10, 10)


def _runtime(app: Any) -> Runtime | None:
    """What the app holds while it runs; None before."""
    return getattr(app.state, "runtime", None)


def build_server(
    settings: Settings,
    alive: Callable[[], None] = lambda: None,
    all_stop: Callable[[], bool] = lambda: True,
    ending: Ending | None = None,
) -> Server:
    """Load the bundles and prepare the HTTP server; the others as in `Server`."""
    sys.setswitchinterval(SWITCH_SECONDS)
    share_memory()
    if several_processes():
        reserve_room_for_metrics()
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
        proxy_headers=True,
        forwarded_allow_ips=list(settings.trusted_proxies),
    )
    return Server(config, settings.drain_seconds, alive, all_stop, ending)


class PathOnly(logging.Filter):
    """Leaves the query out of a line of the access log: it is not used here, and may hold somebody's key."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true: the line is kept."""
        if isinstance(record.args, tuple) and len(record.args) == 5:  # client, method, target, version, status
            client, method, target, *rest = record.args
            record.args = (client, method, f"{target}".partition("?")[0], *rest)
        return True


def log_config(settings: Settings) -> dict[str, Any]:
    """uvicorn's logging, and the service's own messages beside it."""
    config = copy.deepcopy(LOGGING_CONFIG)
    config["filters"] = {"path_only": {"()": PathOnly}}
    config["loggers"]["uvicorn.access"]["filters"] = ["path_only"]
    config["loggers"]["probity"] = {"handlers": ["default"], "level": settings.log_level.upper()}
    return config
