"""A process without a processor for a while: its timers have expired before it reads what arrived in time."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from demur.service.connection.protocol import LAST_REQUEST_SECONDS, LimitedProtocol, limited_protocol
from demur.service.settings import Settings
from tests.support.sockets import answers

CONNECTIONS = 12
SECONDS = 0.3
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
FIRST_HALF, SECOND_HALF = REQUEST[:20], REQUEST[20:]


async def hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


class Starver(asyncio.Protocol):
    """Blocks the event loop for a while when something is sent to it."""

    def __init__(self, seconds: float, entered: threading.Event) -> None:
        self.seconds, self.entered = seconds, entered

    def data_received(self, data: bytes) -> None:
        self.entered.set()
        time.sleep(self.seconds)


class Serving:
    """The service's protocol on a real event loop, in a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, starved_for: float, keep_alive: float) -> None:
        self.loop, self.entered = loop, threading.Event()
        settings = Settings(client_timeout_seconds=3 * SECONDS)
        kind: Any = limited_protocol(settings, lambda _: None)
        self.config = uvicorn.Config(hello, http=kind, log_config=None, lifespan="off")
        self.config.load()
        self.config.timeout_keep_alive = keep_alive  # type: ignore[assignment]
        self.state = uvicorn.server.ServerState()
        self.made: list[LimitedProtocol] = []
        self.starver = lambda: Starver(starved_for, self.entered)

    def protocol(self) -> LimitedProtocol:
        made: Any = self.config.http_protocol_class
        self.made.append(made(config=self.config, server_state=self.state, app_state={}, _loop=self.loop))
        return self.made[-1]

    def shut_down(self) -> None:
        for one in self.made:
            one.shutdown()

    async def listen(self) -> SimpleNamespace:
        listening = [await self.loop.create_server(kind, "127.0.0.1", 0) for kind in (self.protocol, self.starver)]
        service, starver = (one.sockets[0].getsockname() for one in listening)
        return SimpleNamespace(service=service, starver=starver, listening=listening)

    def call(self, function: Callable[[], Any]) -> Any:
        async def called() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result(30)


@contextlib.contextmanager
def serving(starved_for: float, keep_alive: float = 60.0) -> Iterator[tuple[Serving, SimpleNamespace]]:
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    started = Serving(loop, starved_for, keep_alive)
    addresses = asyncio.run_coroutine_threadsafe(started.listen(), loop).result(30)
    yield started, addresses
    started.call(lambda: [one.close() for one in addresses.listening])
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


@pytest.mark.parametrize("timer", ["shutdown", "keep alive", "head"])
def test_what_came_in_time_is_answered(timer: str) -> None:
    seconds = {"shutdown": LAST_REQUEST_SECONDS, "keep alive": SECONDS, "head": SECONDS}[timer]
    with contextlib.ExitStack() as stack:
        service, at = stack.enter_context(serving(seconds + 0.2, SECONDS if timer == "keep alive" else 60.0))
        starver = stack.enter_context(socket.create_connection(at.starver, 30))
        connections = [stack.enter_context(socket.create_connection(at.service, 30)) for _ in range(CONNECTIONS)]
        for connection in connections:
            if timer == "head":
                connection.sendall(FIRST_HALF)
            else:  # the connection is kept
                connection.sendall(REQUEST.replace(b"close", b"keep-alive"))
                assert connection.recv(65536).endswith(b"hi")
        if timer == "shutdown":
            service.call(service.shut_down)
        starver.sendall(b"x")
        assert service.entered.wait(30)
        for connection in connections:
            connection.sendall(SECOND_HALF if timer == "head" else REQUEST)
        assert [status for connection in connections for status, _, _ in answers(connection)] == [200] * CONNECTIONS
