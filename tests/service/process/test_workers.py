"""Several worker processes (`DEMUR_WORKERS=2`): one socket, one set of metrics, one orderly end."""

import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from demur.service.process.supervisor import Supervisor, listener
from demur.service.schemas import PredictResponse
from demur.service.security.api_keys import new_key
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.processes import wait_until
from tests.support.requests import GOOD
from tests.support.server import TIMEOUT, Server, run_to_end, running

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
BODY = json.dumps({"inputs": GOOD}).encode()
IN_FLIGHT = "demur_http_requests_in_flight"  # includes the scrape itself
STARTED = r"Started server process \[(\d+)\]"


def pids(server: Server) -> list[int]:
    """The worker processes that were started, the oldest first."""
    return [int(match[1]) for line in server.lines if (match := re.search(STARTED, line))]


def metric(server: Server, pattern: str) -> float:
    text = server.request("GET", "/metrics")[2].decode()
    return sum(map(float, re.findall(rf"^{pattern} (\S+)$", text, re.MULTILINE)))


def wait_for_metric(server: Server, pattern: str, value: float) -> None:
    """A request is counted just after its client has the response."""
    wait_until(lambda: metric(server, pattern) == value)


def predict(server: Server) -> None:
    status, _, body = server.request("POST", "/predict", BODY)
    assert status == 200, body
    PredictResponse.model_validate_json(body)


def folder_of_the_metrics(server: Server) -> Path:
    """That of the service's own, which holds what its workers count."""
    variables = Path(f"/proc/{pids(server)[0]}/environ").read_text().split("\0")
    folder = Path(dict(line.partition("=")[::2] for line in variables)["PROMETHEUS_MULTIPROC_DIR"])
    assert [*folder.glob("*.db")]
    return folder


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Pause the process during the block; returns once the signal has taken effect."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def two_workers(bundle: Path, **extra: str) -> Iterator[Server]:
    with running(bundle, DEMUR_WORKERS="2", **extra) as server:
        yield server


@pytest.mark.slow
def test_each_worker_answers_and_metrics_add_up(classification: Synthetic) -> None:
    with two_workers(classification.path) as server:
        first, second = pids(server)
        for idle in (first, second):  # what one worker cannot accept, the other does
            with stopped(idle):
                for _ in range(5):
                    predict(server)
        posts = r'demur_http_requests_total\{method="POST",route="/predict",status="200"\}'
        predicted = r"demur_predictions_total\{.*\}"
        wait_for_metric(server, posts, 10)
        wait_for_metric(server, predicted, 10)
        for idle in (first, second):  # either worker reports the metrics of both
            with stopped(idle):
                assert metric(server, posts) == 10
                assert metric(server, predicted) == 10
        info = r"demur_model_info\{.*\}"
        assert metric(server, info) == 1
        assert server.terminate() == 0
        assert len([line for line in server.lines if "Finished server process" in line]) == 2
        assert not [line for line in server.lines if "Traceback" in line or "ERROR" in line]


def test_a_killed_worker_is_replaced_and_the_service_goes_on(classification: Synthetic, tmp_path: Path) -> None:
    with two_workers(classification.path, PROMETHEUS_MULTIPROC_DIR=str(tmp_path)) as server:
        first, second = pids(server)
        predict(server)
        wait_for_metric(server, r"demur_predictions_total\{.*\}", 1)
        os.kill(first, signal.SIGKILL)
        server.wait_for(rf"Worker {first} ended with status -9: starting another")
        predict(server)
        start = next(i for i, line in enumerate(server.lines) if f"Worker {first} ended" in line)
        third = int(server.wait_for(STARTED, start)[1])
        server.wait_for("Application startup complete", start)
        with stopped(second):
            predict(server)
        assert {first, second} & {third} == set()
        assert len(list(tmp_path.glob("counter_*.db"))) == 2  # the new one goes on with those of the dead one
        wait_for_metric(server, r"demur_predictions_total\{.*\}", 3)  # which are not lost
        wait_for_metric(server, IN_FLIGHT, 1)
        assert server.terminate() == 0
    assert tmp_path.is_dir()


def test_one_process_counts_nothing_of_those_before_it(classification: Synthetic, tmp_path: Path) -> None:
    left = [tmp_path / f"{kind}_99999.db" for kind in ("counter", "gauge_livemax")]
    for file in left:
        file.write_bytes(b"of a process that was killed")
    with running(classification.path, PROMETHEUS_MULTIPROC_DIR=str(tmp_path)) as server:
        predict(server)
        wait_for_metric(server, r"demur_predictions_total\{.*\}", 1)
        assert not [file for file in left if file.exists()]
        assert server.terminate() == 0


def test_a_killed_worker_is_replaced_whatever_line_of_the_keys_is_bad_by_then(
    classification: Synthetic, tmp_path: Path
) -> None:
    """And the folder of the metrics goes with a service that is stopped."""
    key, entry = new_key("alice")
    keys = tmp_path / "keys"
    keys.write_text(f"{entry.line}\n")
    with two_workers(classification.path, DEMUR_API_KEYS_FILE=str(keys), DEMUR_LOG_FORMAT="json") as server:
        killed, metrics = pids(server), folder_of_the_metrics(server)
        keys.write_text(f"{entry.line}\n{entry.line}\nsomebody\n")
        start = server.lines_so_far()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        for _ in killed:
            server.wait_for("Application startup complete", start)
        wait_until(lambda: sum("an API key is left out" in line for line in server.lines[start:]) == 4)
        assert server.request("POST", "/predict", BODY, {"X-API-Key": key})[0] == 200
        keys.unlink()
        os.kill(pids(server)[-1], signal.SIGKILL)
        server.wait_for('"level": "error", "message": ".*cannot be read', start)
        assert server.request("POST", "/predict", BODY, {"X-API-Key": key})[0] == 200  # by the other one
        assert server.terminate() == 0
        assert [line for line in server.lines if not line.startswith("{")] == []
    assert not metrics.exists()


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced(classification: Synthetic) -> None:
    with two_workers(classification.path, DEMUR_COMPUTE_TIMEOUT_SECONDS="4") as server:
        first, second = pids(server)
        os.kill(first, signal.SIGSTOP)
        server.wait_for(rf"Worker {first} has shown no sign of life for 5 s")
        server.wait_for(rf"Worker {first} ended with status -9: starting another")
        start = next(i for i, line in enumerate(server.lines) if f"Worker {first} ended" in line)
        server.wait_for("Application startup complete", start)
        predict(server)
        assert server.terminate() == 0
        assert not [line for line in server.lines if f"Worker {second} has shown" in line]


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, 5.0), (60.0, 30.0)])
def test_a_short_time_to_compute_ends_no_worker(seconds: float, expected: float, tmp_path: Path) -> None:
    """Signs of life come once a second, whatever the setting."""
    settings = Settings(compute_timeout_seconds=seconds, port=0)
    with listener(settings) as listening:
        assert Supervisor(settings, listening, tmp_path, owns_folder=False).hang_seconds == expected


@pytest.mark.slow
def test_requests_that_were_begun_are_answered_before_the_end(classification: Synthetic) -> None:
    """One in each worker: while one worker is paused, the other accepts the connection."""
    with two_workers(classification.path) as server, contextlib.ExitStack() as stack:
        connections = []
        for idle in pids(server):
            with stopped(idle):
                connection = stack.enter_context(contextlib.closing(server.socket()))
                connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{" % len(BODY))
                assert server.request("GET", "/health/live")[0] == 200  # came later: so the first one was accepted
            connections.append(connection)
        wait_for_metric(server, IN_FLIGHT, 3)
        server.process.terminate()
        for _ in range(2):
            server.wait_for("Shutting down")
        for connection in connections:
            connection.sendall(BODY[1:])
        for connection in connections:
            answer = b"".join(iter(partial(connection.recv, 65536), b""))
            assert answer.startswith(b"HTTP/1.1 200 ")
        assert server.process.wait(TIMEOUT) == 0


def test_a_signal_from_a_terminal_ends_all(classification: Synthetic) -> None:
    with two_workers(classification.path) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(TIMEOUT) == 0
        server.wait_for_end_of_log()
        assert not [line for line in server.lines if "Traceback" in line or "Exception" in line]
        assert len([line for line in server.lines if "Finished server process" in line]) == 2


def test_workers_end_with_their_parent(classification: Synthetic) -> None:
    """Also when it is killed: nothing else would ever stop them. They drain first, still sending heartbeats, and
    remove the folder of the metrics."""
    with two_workers(classification.path, DEMUR_DRAIN_SECONDS="1.5") as server:
        metrics = folder_of_the_metrics(server)
        server.process.kill()
        server.wait_for_end_of_log()
        assert len([line for line in server.lines if "Finished server process" in line]) == 2
    assert not metrics.exists()


def test_a_bad_bundle_is_one_line_before_any_worker_is_started(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"changed")
    status, out, errors = run_to_end(str(folder), DEMUR_WORKERS="2")
    assert (status, out) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"error: {folder / 'model.onnx'}: ")


def test_a_port_in_use_and_a_missing_folder_are_one_line(classification: Synthetic, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        status, _, errors = run_to_end(str(classification.path), "--port", port, DEMUR_WORKERS="2")
    assert status == 3
    assert "ddress already in use" in errors
    missing = str(tmp_path / "missing")
    extra = {"DEMUR_WORKERS": "2", "PROMETHEUS_MULTIPROC_DIR": missing}
    status, _, errors = run_to_end(str(classification.path), "--port", "0", **extra)
    assert status == 2
    (line,) = errors.splitlines()
    assert "PROMETHEUS_MULTIPROC_DIR" in line
    assert missing in line


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::", socket.AF_INET6)])
def test_several_workers_take_the_addresses_that_one_takes(host: str, family: int) -> None:
    """An address of IPv4 in one of IPv6 would be in no network of trusted proxies."""
    with listener(Settings(host=host, port=0)) as listening:
        assert listening.family == family
        assert family == socket.AF_INET or listening.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
