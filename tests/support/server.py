"""The real service in a process of its own, on a free port; tests can wait for lines of its log."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import typer
from typer.testing import CliRunner

from demur.service.__main__ import serve
from tests.support.processes import wait_until

ROOT = Path(__file__).parents[2]
TIMEOUT = 60
RUNNING = r"running on http://127\.0\.0\.1:(\d+)"
ACCESS = r' INFO: +127\.0\.0\.1:\d+ - "(?P<method>\S+) (?P<path>\S+) HTTP/1\.1" (?P<status>\d+)'


class Server:
    """A running process and its log. Nothing here sleeps: every wait is for a line or for the process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process, self.lines, self.port = process, list[str](), 0
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # `close` does not wait for ever for a process of it that lives on
            for line in self.process.stdout:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, pattern: str, start: int = 0) -> re.Match[str]:
        """The first matching line from line `start` on; fails when the process ends without one."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.lines[start:] if (match := re.search(pattern, line))), None)

        with self._changed:
            self._changed.wait_for(lambda: found() or not self._reader.is_alive(), TIMEOUT)
            match = found()
        assert match is not None, f"no line like {pattern!r} in the log:\n" + "\n".join(self.lines[start:])
        return match

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)

    def request(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (names in lower case) and body of the response."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()

    def socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def lines_so_far(self) -> int:
        """How many lines there are, once everything that was logged up to now has come: they come a little later."""
        marker = f"/{uuid.uuid4().hex}"
        self.request("GET", marker)
        self.wait_for(re.escape(f'"GET {marker} '))
        return next(number for number, line in enumerate(self.lines, 1) if marker in line)

    def log_of(self, marker: str, start: int) -> list[str]:
        """The log from line `start` on, once a request to the path `marker` is logged, without that line."""
        self.request("GET", marker)
        self.wait_for(re.escape(f'"GET {marker} '), start)
        return [line for line in self.lines[start:] if marker not in line]

    def wait_until_loaded(self, **headers: str) -> None:
        """Wait until each bundle below DEMUR_MODELS was tried, whether it is served or refused."""
        wait_until(lambda: self._problem_of_no_model(headers) == "model_not_found")

    def _problem_of_no_model(self, headers: dict[str, str]) -> str:
        answer: dict[str, str] = json.loads(self.request("POST", "/models/none/predict", b"{}", headers)[2])
        return answer["code"]

    def wait_for_end_of_log(self) -> None:
        """Wait until the process and its workers have closed their log."""
        self._reader.join(TIMEOUT)
        assert not self._reader.is_alive(), "the log did not end"

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT)
        self._reader.join(TIMEOUT)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def start_peak(self) -> int:
        """Reset the peak of the process's memory, and return it in KiB."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.peak_kib()

    def peak_kib(self) -> int:
        """The peak of the process's memory since `start_peak`, in KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert match is not None
        return int(match[1])

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(TIMEOUT)
        self.wait_for_end_of_log()
        return status


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without the service's own variables, and with `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("DEMUR_")}
    return kept | extra


@contextlib.contextmanager
def running(bundle: Path, **extra: str) -> Iterator[Server]:
    """The service of `bundle`, ready for requests; the block ends it."""
    with starting(str(bundle), **extra) as server:
        server.port = int(server.wait_for(RUNNING)[1])
        yield server


@contextlib.contextmanager
def starting(*arguments: str, **extra: str) -> Iterator[Server]:
    """The service with these arguments, not ready yet; the block ends it."""
    with starting_at(subprocess.DEVNULL, arguments, extra) as server:
        yield server


@contextlib.contextmanager
def starting_at(stdin: int, arguments: Sequence[str], extra: Mapping[str, str]) -> Iterator[Server]:
    """The same with this standard input, such as a terminal."""
    command = [sys.executable, "-m", "demur.service", *arguments, "--port", "0"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(**extra),
        text=True,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    server = Server(process)
    try:
        yield server
    finally:
        server.close()


def run_to_end(*arguments: str, **extra: str) -> tuple[int, str, str]:
    """Exit status, standard output and error of a `python -m demur.service` that ends by itself."""
    command = [sys.executable, "-m", "demur.service", *arguments]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment(**extra), text=True, capture_output=True, timeout=TIMEOUT, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def refusal(*arguments: str, **extra: str) -> str:
    """What `python -m demur.service` says as it ends with status 2, before it serves: in this process, as starting one
    takes seconds."""
    command = typer.Typer(add_completion=False)
    command.command()(serve)
    unset = {name: None for name in os.environ if name.upper().startswith("DEMUR_")}
    found = CliRunner().invoke(command, arguments, env={**unset, **extra})
    assert found.exit_code == 2, found.output
    return found.stderr
