"""The uvicorn server, with the signals of a container: SIGTERM drains and the process exits 0."""

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from socket import socket
from types import FrameType

import uvicorn

from service.runtime import Runtime

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(uvicorn.Server):
    """uvicorn raises a captured signal again after shutting down, so an orderly stop looks like a crash. Not here.

    On SIGTERM readiness fails at once; requests are accepted for `drain_seconds` more, until the load balancer has
    noticed; then nothing new is accepted, what runs is finished, and the process ends. SIGINT, and a second signal, do
    not wait.
    """

    def __init__(self, config: uvicorn.Config, drain_seconds: float = 0.0) -> None:
        super().__init__(config)
        self.drain_seconds = drain_seconds
        self._event_loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket] | None = None) -> None:
        """Serve until told to stop."""
        self._event_loop = asyncio.get_running_loop()
        await super().serve(sockets)

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
        runtime: Runtime | None = getattr(self.config.loaded_app.state, "runtime", None)
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
