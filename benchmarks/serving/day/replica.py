"""One replica of the service: a real process, on a port that stays the same when it is started again."""

import signal
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from benchmarks.serving.digits import binary
from benchmarks.serving.process import ServerProcess, free_port, started
from benchmarks.serving.tree import resident_bytes


class Replica:
    """Serves a folder of models; `instance` is its name in the metrics."""

    def __init__(self, number: int, models: Path, secret: Path, scratch: Path) -> None:
        self.instance, self.port = f"replica-{number}:8000", free_port()
        self._name, self._models, self._secret, self._scratch = f"replica-{number}", models, secret, scratch
        self._starts = 0
        self._stack = ExitStack()
        self._server: ServerProcess | None = None

    def start(self) -> None:
        """Until it answers."""
        self._starts += 1
        command = [sys.executable, "-m", "demur.service", "--models", str(self._models), "--port", str(self.port)]
        settings = {"DEMUR_ACCESS_LOG": "false", "DEMUR_FEEDBACK_SECRET_FILE": str(self._secret)}
        log = self._scratch / f"{self._name}-{self._starts}.log"
        server = self._stack.enter_context(started(command, settings, self.port, log))
        self._server = server
        server.wait_until_answered(binary(1))

    def stop(self) -> None:
        """As for a new deployment: SIGTERM, and what was asked is answered."""
        self._server = None
        self._stack.close()

    @property
    def up(self) -> bool:
        return self._server is not None

    def reload(self) -> None:
        """SIGHUP; the service looks for bundles and pinned versions while it goes on answering."""
        assert self._server is not None
        self._server.process.send_signal(signal.SIGHUP)

    def scrape(self) -> str | None:
        """Its metrics; None where it is down."""
        if not self.up:
            return None
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as response:
            text: str = response.read().decode()
        return text

    def resident_bytes(self) -> int | None:
        """Of the process and those that it has started, one that tries a new bundle for example."""
        return None if self._server is None else resident_bytes(self._server.pid)
