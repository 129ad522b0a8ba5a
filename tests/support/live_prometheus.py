"""A real Prometheus that scrapes a real service several times a second, with the alerts of deploy/."""

import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.deployment import RULE_FILES

TIMEOUT = 60


class Prometheus:
    """What it answers; every wait is a question that is asked again."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{path}?{urllib.parse.urlencode(query)}", timeout=TIMEOUT) as response:
            return json.load(response)["data"]

    def value(self, expression: str) -> float | None:
        """The only sample of an expression; None without one."""
        result = self.get("/api/v1/query", query=expression)["result"]
        assert len(result) <= 1, result
        return float(result[0]["value"][1]) if result else None

    def wait_for(self, expression: str, expected: float) -> None:
        end = time.monotonic() + TIMEOUT
        while (found := self.value(expression)) != expected:
            assert time.monotonic() < end, f"{expression} is {found}, expected {expected}"


@contextlib.contextmanager
def scraping(port: int, folder: Path) -> Iterator[Prometheus]:
    """Prometheus of the service on this port, ready."""
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "1s"},
        "rule_files": [str(file) for file in RULE_FILES],
        "scrape_configs": [{"job_name": "models", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{own}"], cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield _ready(Prometheus(own), process, folder / "prometheus.log")
        finally:
            process.terminate()
            process.wait(TIMEOUT)


def _ready(found: Prometheus, process: "subprocess.Popen[bytes]", log: Path) -> Prometheus:
    end = time.monotonic() + TIMEOUT
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if found.value("up") is not None:
                return found
