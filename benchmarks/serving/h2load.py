"""h2load (Debian's nghttp2-client): one generator for HTTP/1.1 and for gRPC, so that what is compared is the server."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.core.harness import MeasurementError

CONNECTIONS = 16
DONE = re.compile(r"finished in [\d.]+m?s, ([\d.]+) req/s")
STATUSES = re.compile(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx")


@dataclass(frozen=True)
class Asked:
    """What is sent, again and again: a path, headers and a body; `http2` as gRPC needs it."""

    name: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    http2: bool


def answered_a_second(port: int, asked: Asked, seconds: float, scratch: Path) -> float:
    """In a closed loop of as many connections, each with one request at a time."""
    found = re.search(DONE, _run(port, asked, ["-D", f"{max(1, round(seconds))}", "--warm-up-time=1"], scratch))
    assert found is not None
    return float(found[1])


def latencies(port: int, asked: Asked, rate: float, seconds: float, scratch: Path) -> np.ndarray:
    """Seconds of each of the requests that the connections send at an even pace, `rate` a second in all."""
    log = scratch / "h2load.log"
    log.unlink(missing_ok=True)
    paced = ["-n", f"{round(rate * seconds)}", f"--rps={rate / CONNECTIONS:.3f}", f"--log-file={log}"]
    _run(port, asked, paced, scratch)
    return np.loadtxt(log, usecols=2, ndmin=1) / 1e6


def _run(port: int, asked: Asked, options: Sequence[str], scratch: Path) -> str:
    program = shutil.which("h2load")
    if program is None:
        raise MeasurementError("found no h2load, expected it on the path (Debian: apt-get install nghttp2-client)")
    body = scratch / "body"
    body.write_bytes(asked.body)
    headers = [part for name, value in asked.headers for part in ("-H", f"{name}: {value}")]
    form = [] if asked.http2 else ["--h1"]
    command = [program, "-t1", f"-c{CONNECTIONS}", "-m1", *form, *options, *headers, "-d", str(body)]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}{asked.path}"], capture_output=True, text=True, check=False
    )
    statuses = re.search(STATUSES, done.stdout)
    if done.returncode or statuses is None or any(int(statuses[i]) for i in (2, 3, 4)) or not int(statuses[1]):
        raise MeasurementError(f"h2load: found {(done.stdout + done.stderr).strip()[-400:]}")
    return done.stdout
