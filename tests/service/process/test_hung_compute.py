"""A network that never returns: waiting requests are answered, health fails, and the process still ends."""

import contextlib
import json
import re
import time
from pathlib import Path

import pytest

from tests.support.hanging import HANGS, write_hanging
from tests.support.processes import wait_until
from tests.support.requests import GOOD
from tests.support.server import Server, running

ENDLESS = json.dumps({"inputs": [HANGS]}).encode()
GOOD_BODY = json.dumps({"inputs": GOOD}).encode()
ONE_AT_ONCE = {"DEMUR_THREADS": "99"}


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hanging")
    return write_hanging(folder / "bundle", folder / "plain")


def ask(server: Server, body: bytes, seconds: str = "1") -> tuple[int, str]:
    """Status and problem code."""
    status, _, answer = server.request("POST", "/predict", body, {"X-Request-Timeout": seconds})
    return status, json.loads(answer).get("code", "")


def health(server: Server, name: str) -> int:
    return server.request("GET", f"/health/{name}")[0]


def wait_for_health(server: Server, status: int) -> None:
    wait_until(lambda: health(server, "live") == status)


def oldest_batch(server: Server) -> float:
    text = server.request("GET", "/metrics")[2].decode()
    (value,) = re.findall(r"^demur_oldest_batch_seconds (\S+)$", text, re.MULTILINE)
    return float(value)


@pytest.mark.slow
def test_a_batch_that_hangs_is_answered_at_its_deadline_and_seen(hanging: Path) -> None:
    with running(hanging, DEMUR_COMPUTE_TIMEOUT_SECONDS="3", **ONE_AT_ONCE) as server:
        assert ask(server, GOOD_BODY) == (200, "")
        assert oldest_batch(server) == 0
        assert ask(server, ENDLESS) == (504, "deadline")
        assert ask(server, GOOD_BODY) == (504, "deadline")  # no worker is left to compute it
        assert oldest_batch(server) > 0
        wait_for_health(server, 503)
        status, _, answer = server.request("GET", "/health/live")
        assert (status, json.loads(answer)["code"]) == (503, "compute_hangs")
        assert health(server, "ready") == 503
        assert server.request("GET", "/v2/models/hanging/ready")[0] == 503
        assert oldest_batch(server) >= 3
        server.wait_for(r"A batch has been computed for \d+\.\d s, longer than 3 s")


def test_a_model_that_hangs_leaves_the_other_workers_to_the_others(hanging: Path) -> None:
    with running(hanging, DEMUR_THREADS="1") as server:
        assert ask(server, ENDLESS) == (504, "deadline")
        assert ask(server, GOOD_BODY, "30") == (200, "")
        assert health(server, "live") == 200


@pytest.mark.slow
def test_the_process_ends_though_a_batch_hangs(hanging: Path) -> None:
    """Also while requests wait for it."""
    with (
        running(hanging, DEMUR_SHUTDOWN_SECONDS="1", **ONE_AT_ONCE) as server,
        contextlib.closing(server.socket()) as connection,
    ):
        assert ask(server, ENDLESS) == (504, "deadline")
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(GOOD_BODY))
        connection.sendall(GOOD_BODY)
        wait_until(lambda: b"demur_http_requests_in_flight 2.0" in server.request("GET", "/metrics")[2])
        start = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - start < 20
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert not [line for line in server.lines if "Traceback" in line]


@pytest.mark.slow
def test_a_worker_whose_computation_hangs_is_replaced(hanging: Path) -> None:
    extra = {"DEMUR_WORKERS": "2", "DEMUR_COMPUTE_TIMEOUT_SECONDS": "4"}
    with running(hanging, **extra, **ONE_AT_ONCE) as server:
        assert ask(server, ENDLESS) == (504, "deadline")
        pid = server.wait_for(r"Worker (\d+) has shown no sign of life for 5 s")[1]
        server.wait_for(rf"Worker {pid} ended with status -9: starting another")
        start = next(i for i, line in enumerate(server.lines) if f"Worker {pid} ended" in line)
        server.wait_for("Application startup complete", start)
        assert ask(server, GOOD_BODY, "30") == (200, "")
        assert server.terminate() == 0
