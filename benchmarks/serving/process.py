"""A server process: start it, wait for it, send requests, end it."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.core.folders import ROOT
from benchmarks.core.harness import MeasurementError
from benchmarks.serving.digits import Request
from benchmarks.serving.tree import session
from demur.service.environment.cpu import available_cpus

START_SECONDS, STOP_SECONDS = 90.0, 60.0
LOG_TAIL = 1500


class ServerProcess:
    """A server that listens on `port`; what it prints goes to the file `log`."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    @property
    def pid(self) -> int:
        return self.process.pid

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-LOG_TAIL:].replace(str(ROOT), ".").strip()

    def ask(self, request: Request, seconds: float = 30.0) -> tuple[int, bytes]:
        """Status and body of one answer."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)) as connection:
            connection.request("POST", request.path, request.body, dict(request.headers))
            response = connection.getresponse()
            return response.status, response.read()

    def wait_until_answered(self, request: Request) -> bytes:
        """The body of the first 200; raises `MeasurementError` with the end of the log where there is none in time."""
        end = time.monotonic() + START_SECONDS
        found = "no answer"
        while time.monotonic() < end and self.process.poll() is None:
            try:
                status, body = self.ask(request)
                if status == 200:
                    return body
                found = f"status {status}, {body[:200]!r}"
            except (OSError, http.client.HTTPException) as error:
                found = str(error)
            time.sleep(0.1)
        raise MeasurementError(f"the server does not answer ({found}); its log ends with: {self.tail()}")

    def terminate(self) -> None:
        """SIGTERM; processes that outlive the first one are killed at once, as a container's end does."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self._kill()

    def end(self) -> None:
        """Politely, then by force, with everything it has started."""
        if self.process.poll() is None:
            self.terminate()
        self._kill()
        self.process.wait()

    def _kill(self) -> None:
        for pid in session(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def started(command: Sequence[str], environment: Mapping[str, str], port: int, log: Path) -> Iterator[ServerProcess]:
    """A server that runs while the block does; the environment has none of the service's variables but those given."""
    inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith("DEMUR_")}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            list(command),
            cwd=ROOT,
            env={**inherited, "PYTHONPATH": str(ROOT), **environment},
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        server = ServerProcess(process, port, log)
        try:
            yield server
        finally:
            server.end()


@contextlib.contextmanager
def demur(bundle: Path, log: Path, ready: Request, threads: int, **settings: str) -> Iterator[ServerProcess]:
    """`python -m demur.service` with its defaults, but for the settings that are given, once it has answered
    `ready`."""
    port = free_port()
    command = [sys.executable, "-m", "demur.service", str(bundle), "--port", str(port)]
    if threads != available_cpus():
        settings["DEMUR_THREADS"] = str(threads)
    with started(command, settings, port, log) as server:
        server.wait_until_answered(ready)
        yield server


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
