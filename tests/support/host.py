"""An ASGI application behind the service's own protocol, on a real port, in a thread of this process."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import uvicorn
from anyio.from_thread import start_blocking_portal
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from demur.service.connection.protocol import limited_protocol
from demur.service.settings import Settings
from tests.support.server import TIMEOUT
from tests.support.sockets import answers


@dataclass
class Host:
    """A server's port and uvicorn's state of it."""

    port: int
    state: ServerState

    @contextlib.contextmanager
    def connection(self) -> Iterator[socket.socket]:
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.port), TIMEOUT)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection

    def exchange(self, *pieces: bytes) -> list[tuple[int, bytes]]:
        """Send the pieces; status and body of each response until the server closes the connection."""
        with self.connection() as connection:
            for piece in pieces:
                connection.sendall(piece)
            return [(status, body) for status, _, body in answers(connection)]


@contextlib.asynccontextmanager
async def listening(app: ASGIApp, settings: Settings) -> AsyncIterator[Host]:
    """In the running event loop, for an application that has been started."""
    state = ServerState()
    kind = limited_protocol(settings, lambda _: None)
    config = uvicorn.Config(app, http=kind, ws="none", lifespan="off", log_config=None)
    config.load()
    server = await asyncio.get_running_loop().create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
    async with server:
        yield Host(server.sockets[0].getsockname()[1], state)
        for connection in [*state.connections]:
            connection.transport.close()


@contextlib.contextmanager
def hosting(app: ASGIApp, settings: Settings | None = None, *, uvloop: bool = False) -> Iterator[Host]:
    """In an event loop of its own, in a thread."""
    host = listening(app, settings or Settings())
    options = {"use_uvloop": True} if uvloop else {}
    with start_blocking_portal("asyncio", options) as portal, portal.wrap_async_context_manager(host) as started:
        yield started
