"""The uvicorn server with a container's signals: SIGTERM drains, and the process exits with status 0."""

import asyncio
import contextlib
import contextvars
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from ..app import create_app
from ..connection.protocol import limited_protocol
from ..format.text import printable
from ..inference.graph import share_memory
from ..models.loading import load_named
from ..monitoring.metrics import several_processes
from ..runtime import Runtime
from ..settings import Settings
from .forced_exit import ForcedExit, exit_now
from .listening import OutOfDescriptors, accept_waiting, most_connections, refuse_new_connections
from .logs import log_config
from .metrics_files import share_metrics
from .startup_signals import in_terminal

if TYPE_CHECKING:
    from ..rpc.server import RpcServer

log = logging.getLogger("demur")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WITHOUT_MEANING = (signal.SIGUSR1, signal.SIGUSR2)  # to this service: they would end it without an answer
# Longer than the minute for which load balancers commonly keep idle connections: they must close first, or they send a
# request over a connection that has just been closed.
KEEP_ALIVE_SECONDS = 75
# When the service stops, how long to wait for handshakes that were begun.
HANDSHAKE_SECONDS = 0.25
# How long to wait for the message that the other workers stop, too.
OTHERS_SECONDS = 1.0
# How long to wait for idle connections to release file descriptors that waiting connections need.
DESCRIPTOR_SECONDS = 3.0
# How long the exit may take beside the time to drain and to finish; then the process is ended by force.
EXIT_SECONDS = 7.0
LOADING_SECONDS = 2.0
# New objects between two collections of the youngest generation; Python's default is 2,000 or fewer. Connections that
# end are garbage until the oldest one is collected: how often, bounds what a crowd of them holds, and the pause.
GARBAGE_OBJECTS, GENERATIONS = 10_000, (5, 1)
# How long a thread may keep the GIL while another wants it. The default of 5 ms is several times as long as a small
# network computes, and both its thread and the event loop need the GIL several times per batch.
SWITCH_SECONDS = 0.0005


class Server(uvicorn.Server):
    """uvicorn's server, which drains on SIGTERM and then exits with status 0 (uvicorn raises the signal again).

    On SIGTERM readiness fails at once. Requests are accepted for `drain_seconds` more, until the load balancer has
    noticed; then nothing new is accepted, running requests are finished, and the process ends. SIGINT does not wait.
    SIGHUP looks for new, changed and removed bundles; where the service was started in a terminal, that has closed, and
    SIGHUP does as SIGTERM. A second SIGTERM changes nothing: of one to the whole process group, a worker gets two.

    `heartbeat` is called when requests are accepted, and about every second from then on. `all_stop` returns whether no
    other process goes on accepting from the listening sockets. `forced_exit` ends the process if it does not by itself.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain_seconds: float = 0.0,
        heartbeat: Callable[[], None] = lambda: None,
        all_stop: Callable[[], bool] = lambda: True,
        forced_exit: ForcedExit | None = None,
    ) -> None:
        super().__init__(config)
        self.drain_seconds, self.heartbeat = drain_seconds, heartbeat
        self._all_stop, self._forced_exit = all_stop, forced_exit
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._most_connections, self._crowded = sys.maxsize, False
        self._rpc: RpcServer | None = None
        self._of_terminal, self._reloads = in_terminal(), set[asyncio.Task[None]]()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal, without waiting for threads that still compute then."""
        super().run(sockets)
        runtime = _runtime(self.config.app)
        if self._forced_exit is not None and runtime is not None and runtime.compute_threads.oldest_seconds:
            log.error("A batch was still computed at the end and is left behind")
            exit_now(self._forced_exit.status)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal."""
        self._event_loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Load the models' folder, and accept requests."""
        await super().startup(sockets)
        most = most_connections()
        self._most_connections = most - await self._start_rpc(max(1, most // 4))
        _tune_garbage_collection()
        self.heartbeat()

    async def _start_rpc(self, connections: int) -> int:
        """How many connections it may have of so many; 0 without it."""
        runtime = _runtime(self.config.app)
        if runtime is None or runtime.settings.grpc_port is None or self.should_exit:
            return 0
        from ..rpc.server import RpcServer

        app: Any = self.config.app
        self._rpc = RpcServer(app, self.server_state.tasks, connections)
        try:
            await self._rpc.start()
        except OSError as error:
            log.error("%s; give another port (DEMUR_GRPC_PORT) or host (DEMUR_HOST)", error)
            await self.lifespan.shutdown()
            sys.exit(1)
        log.info("gRPC running on %s:%d", self.config.host, self._rpc.port)
        return connections

    def _stop_rpc(self) -> None:
        """Take no more calls; uvicorn waits for its tasks, and so for those that run."""
        if self._rpc is not None:
            seconds = self.config.timeout_graceful_shutdown or 0
            stopping = asyncio.get_running_loop().create_task(self._rpc.stop(seconds))
            self.server_state.tasks.add(stopping)
            stopping.add_done_callback(self.server_state.tasks.discard)

    async def on_tick(self, counter: int) -> bool:
        """uvicorn calls this ten times a second. There is no heartbeat while the computation hangs."""
        self._make_room()
        if counter % 10 == 0:
            runtime = _runtime(self.config.app)
            if runtime is not None:
                runtime.check_computation()
            if runtime is None or runtime.alive:
                self.heartbeat()
        # uvloop accepts one connection per iteration: under load, connections would wait for seconds.
        await self._accept_waiting()
        return await super().on_tick(counter)

    def _make_room(self) -> None:
        """Close idle connections where hardly a file handle is left for others: without one, connections are reset as
        soon as they are made, those of health checks too."""
        crowded = len(self.server_state.connections) > self._most_connections
        if crowded and not self._crowded:
            log.error(
                "More than %d connections are open, nearly all that the limit of open files allows; idle ones are "
                "closed",
                self._most_connections,
            )
        if crowded:
            for connection in list(self.server_state.connections):
                connection.shutdown()
        self._crowded = crowded

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept every established connection, and then no more: closing the socket would reset those that wait, and
        lose their requests. Loads of models end at once: they may take longer than the time to finish."""
        if (runtime := _runtime(self.config.app)) is not None:
            await runtime.repository.stop_loading()
        self._stop_rpc()
        await self._finish_handshakes()
        await self._accept_remaining()
        await super().shutdown(sockets)
        if self._forced_exit is not None:  # everything is answered; a bundle that is still loading may hang
            self._forced_exit.schedule(LOADING_SECONDS)

    async def _finish_handshakes(self) -> None:
        """Wait for handshakes under way, unless other processes go on accepting: then nothing is lost."""
        loop = asyncio.get_running_loop()
        end = loop.time() + OTHERS_SECONDS
        while not self._all_stop():
            if loop.time() > end:
                return
            await asyncio.sleep(HANDSHAKE_SECONDS / 10)
        for listener in self._listeners():
            refuse_new_connections(listener)
        await asyncio.sleep(HANDSHAKE_SECONDS)

    async def _accept_remaining(self) -> None:
        """Accept what waits, and close idle connections where no file descriptor is left for it."""
        loop = asyncio.get_running_loop()
        end, closed_idle = loop.time() + DESCRIPTOR_SECONDS, False
        while not await self._accept_waiting() and loop.time() < end:
            if not closed_idle:
                log.error("No file handle is left for connections that wait; idle ones are closed")
                for connection in list(self.server_state.connections):
                    connection.shutdown()
                closed_idle = True
            await asyncio.sleep(0.05)
        for server in self.servers:
            server.close()

    async def _accept_waiting(self) -> bool:
        """Accept every connection that waits; returns whether none is left."""
        waiting = list[socket.socket]()
        complete = True
        try:
            for listener in self._listeners():
                waiting.extend(accept_waiting(listener))
        except OutOfDescriptors:
            complete = False
        loop = asyncio.get_running_loop()
        accepted = (loop.connect_accepted_socket(self._protocol, connection) for connection in waiting)
        for failure in await asyncio.gather(*accepted, return_exceptions=True):
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
        """Handle signals while serving; afterwards the process goes on to its normal end."""
        with handled_signals(self.handle_signal):
            yield

    def handle_signal(self, sig: int, frame: FrameType | None) -> None:
        """What the signal asks for: new bundles, or the end."""
        if sig != signal.SIGHUP or self._of_terminal:
            self.handle_exit(sig, frame)
        elif self._event_loop is not None:
            # A signal handler runs between any two instructions: only this call is safe there.
            # In a context of its own: the one at hand is that of some request, which the log would name.
            self._event_loop.call_soon_threadsafe(self._reload, context=contextvars.Context())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Readiness turns to 503 at once, for clients that keep their connection; then drain."""
        runtime = _runtime(self.config.app)
        if runtime is None and self._forced_exit is not None:  # models are still loading, which may take for ever
            exit_now(self._forced_exit.status)
        first, self._stopping = not self._stopping, True
        if sig != signal.SIGINT and not first:
            return
        if runtime is not None:
            runtime.draining = True
        if self.drain_seconds and sig != signal.SIGINT and self._event_loop is not None:
            self._schedule_exit(self.drain_seconds + (self.config.timeout_graceful_shutdown or 0))
            self._event_loop.call_soon_threadsafe(self._stop_later, sig)
        else:
            self._schedule_exit(self.config.timeout_graceful_shutdown or 0)
            super().handle_exit(sig, frame)

    def _reload(self) -> None:
        runtime = _runtime(self.config.app)
        if runtime is not None and not self._stopping:
            log.info("SIGHUP: looking for new, changed and removed bundles")
            task = asyncio.get_running_loop().create_task(_refreshed(runtime))
            self._reloads.add(task)
            task.add_done_callback(self._reloads.discard)

    def _schedule_exit(self, seconds: float) -> None:
        if self._forced_exit is not None:
            self._forced_exit.schedule(seconds + EXIT_SECONDS)

    def _stop_later(self, sig: int) -> None:
        asyncio.get_running_loop().call_later(self.drain_seconds, super().handle_exit, sig, None)


@contextlib.contextmanager
def handled_signals(handle: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """While the block runs, `handle` the signals that mean something to the service, and ignore those that do not.

    A SIGHUP that is ignored stays so: `nohup` has asked for it.
    """
    wanted: dict[signal.Signals, Any] = dict.fromkeys(SIGNALS, handle) | dict.fromkeys(WITHOUT_MEANING, signal.SIG_IGN)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        del wanted[signal.SIGHUP]
    previous = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


async def _refreshed(runtime: Runtime) -> None:
    try:
        await runtime.refresh()
    except OSError as error:
        log.error("the models' folder cannot be read, the loaded models stay: %s", printable(str(error)))


def _tune_garbage_collection() -> None:
    """Exempt everything that exists now, and collect less often: most objects of a request end with it. Collections
    would take a good part of the time of requests, and once in a while as long as many of them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, *GENERATIONS)


def _runtime(app: Any) -> Runtime | None:
    """The runtime of the app while it runs; None before."""
    return getattr(app.state, "runtime", None)


def build_server(
    settings: Settings,
    heartbeat: Callable[[], None] = lambda: None,
    all_stop: Callable[[], bool] = lambda: True,
    forced_exit: ForcedExit | None = None,
    slot: int = 0,
) -> Server:
    """Load the bundles and prepare the HTTP server; slot: of this worker; the other arguments are those of `Server`."""
    sys.setswitchinterval(SWITCH_SECONDS)
    share_memory()
    if several_processes():
        share_metrics(slot)
    predictors = load_named(settings)
    app = create_app(predictors, settings)

    def count_error(code: str) -> None:
        runtime = _runtime(app)
        if runtime is not None:
            runtime.metrics.errors.labels(code).inc()

    protocol = limited_protocol(settings, count_error)
    config = uvicorn.Config(app, http=protocol, **uvicorn_options(settings))
    return Server(config, settings.drain_seconds, heartbeat, all_stop, forced_exit)


def uvicorn_options(settings: Settings) -> dict[str, Any]:
    """What uvicorn is configured with, besides the application and its protocol."""
    return {
        "host": settings.host,
        "port": settings.port,
        "loop": "auto",  # uvloop where it is installed
        "ws": "none",
        "workers": 1,
        "log_config": log_config(settings),
        "log_level": settings.log_level,
        "access_log": False,  # the service has its own, which knows more
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": settings.shutdown_seconds,
        "server_header": False,
        "proxy_headers": True,
        "forwarded_allow_ips": list(settings.trusted_proxies),
    }
