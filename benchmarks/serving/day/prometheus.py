"""A real Prometheus over a day that has passed: import its samples and evaluate its rules, then ask for any range."""

import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.core.folders import ROOT
from benchmarks.core.harness import MeasurementError
from benchmarks.serving.day.plan import MINUTES
from benchmarks.serving.day.recording import START
from benchmarks.serving.process import START_SECONDS, STOP_SECONDS, free_port

RECORDING_RULES = ROOT / "deploy" / "prometheus" / "recording.yml"
STEP = 60  # seconds between evaluations of a rule
# Imported samples of a target that is gone have no mark of their end: the last ones count for so long, not for 5 min.
LOOKBACK = "90s"
Series = dict[str, Any]


class Prometheus:
    """Asks one that listens on `port`."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=10):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def over_the_day(self, expression: str, step: int = STEP) -> list[tuple[dict[str, str], dict[int, float]]]:
        """Each series of the answer: its labels, and its values by the minute."""
        query = {"query": expression, "start": START, "end": START + 60 * MINUTES, "step": step}
        data = urllib.parse.urlencode(query).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/query_range", data, timeout=120) as response:
            result: list[Series] = json.load(response)["data"]["result"]
        return [
            (one["metric"], {(int(moment) - START) // 60: float(value) for moment, value in one["values"]})
            for one in result
        ]


def check_installed() -> None:
    """Raises `MeasurementError` unless both programs are there."""
    if missing := [program for program in ("prometheus", "promtool") if shutil.which(program) is None]:
        raise MeasurementError(f"found no {' and '.join(missing)} on PATH (Debian package: prometheus)")


@contextlib.contextmanager
def prometheus_of(samples: Path, folder: Path) -> Iterator[Prometheus]:
    """One that has these samples, and what the recording rules make of them."""
    data = folder / "data"
    _promtool("openmetrics", str(samples), str(data))
    bounds = [f"--start={START}", f"--end={START + 60 * MINUTES}", f"--eval-interval={STEP}s"]
    with _running(folder) as empty_of_rules:
        places = [f"--url={empty_of_rules.url}", f"--output-dir={data}"]
        _promtool("rules", *bounds, *places, str(RECORDING_RULES))
    with _running(folder) as found:  # blocks are read at the start
        yield found


def _promtool(what: str, *arguments: str) -> None:
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", what, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MeasurementError(f"promtool: found exit status {done.returncode}: {done.stderr[-500:]}")


@contextlib.contextmanager
def _running(folder: Path) -> Iterator[Prometheus]:
    """It scrapes nothing; the samples are older than what it would keep."""
    (folder / "prometheus.yml").write_text("global: {}\n")
    port, log = free_port(), folder / "prometheus.log"
    options = [f"--query.lookback-delta={LOOKBACK}", "--storage.tsdb.retention.time=100y"]
    places = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"]
    with log.open("w") as stream:
        process = subprocess.Popen(["prometheus", *places, *options], cwd=folder, stdout=stream, stderr=stream)
        found, end = Prometheus(port), time.monotonic() + START_SECONDS
        try:
            while not found.ready():
                if process.poll() is not None or time.monotonic() > end:
                    raise MeasurementError(f"prometheus does not answer; its log ends with: {log.read_text()[-1000:]}")
                time.sleep(0.1)
            yield found
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)
