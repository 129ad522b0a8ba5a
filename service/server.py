"""The uvicorn server, with the signals of a container: SIGTERM drains and the process exits 0."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

import uvicorn

from service.runtime import Runtime

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(uvicorn.Server):
    """uvicorn raises a captured signal again after shutting down, so an orderly stop looks like a crash. Not here."""

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
        runtime: Runtime | None = getattr(self.config.app.state, "runtime", None)  # type: ignore[union-attr]
        if runtime is not None:
            runtime.draining = True
        super().handle_exit(sig, frame)
