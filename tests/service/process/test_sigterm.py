"""SIGTERM at bad moments: no request over an open connection is lost, and the process ends with status 0."""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from demur.service.connection.protocol import LAST_REQUEST_SECONDS
from tests.service.process.test_workers import pids, stopped, two_workers
from tests.support.bundles import Synthetic
from tests.support.hanging import write_hanging
from tests.support.processes import children_of, wait_until
from tests.support.requests import GOOD
from tests.support.server import ROOT, TIMEOUT, environment, running

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
BODY = json.dumps({"inputs": GOOD}).encode()
REQUEST = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


def ask(connection: socket.socket) -> bytes:
    """The status of the response to one request on a connection that is kept."""
    connection.sendall(REQUEST)
    return answer(connection)


def answer(connection: socket.socket) -> bytes:
    """The status of one whole response; empty without a response."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n\r\n" not in received and (piece := connection.recv(65536)):
            received += piece
        head, _, body = received.partition(b"\r\n\r\n")
        while head and len(body) < _length(head) and (piece := connection.recv(65536)):
            body += piece
    return received[9:12]


def _length(head: bytes) -> int:
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    return int(fields[b"content-length"])


@pytest.mark.slow
def test_what_arrived_while_the_process_was_starved_is_answered(classification: Synthetic) -> None:
    """Its timers have expired before it reads what arrived in time."""
    with running(classification.path) as server, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(contextlib.closing(server.socket())) for _ in range(12)]
        assert {ask(connection) for connection in connections} == {b"200"}
        server.process.terminate()
        server.wait_for("Shutting down")
        with stopped(server.process.pid):
            for connection in connections:
                connection.sendall(REQUEST)
            time.sleep(LAST_REQUEST_SECONDS + 0.2)
        assert [answer(connection) for connection in connections] == [b"200"] * len(connections)
        assert server.process.wait(TIMEOUT) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_connection_that_was_made_is_answered_whenever_the_signal_comes(
    classification: Synthetic, workers: str
) -> None:
    """Clients open a connection for each request, until nothing listens any more."""
    with running(classification.path, DEMUR_WORKERS=workers) as server:
        outcomes, begun = list[bytes](), threading.Semaphore(0)

        def churn() -> None:
            with contextlib.suppress(OSError):  # not connected: nothing was lost
                while True:
                    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), 10)) as connection:
                        with contextlib.suppress(ConnectionError):
                            connection.sendall(REQUEST)
                        outcomes.append(answer(connection))
                        begun.release()

        clients = [threading.Thread(target=churn) for _ in range(8)]
        for client in clients:
            client.start()
        for _ in range(50):
            assert begun.acquire(timeout=TIMEOUT)
        assert server.terminate() == 0
        for client in clients:
            client.join(TIMEOUT)
        assert set(outcomes) == {b"200"}


def test_it_ends_in_order_where_no_file_handle_is_left(classification: Synthetic) -> None:
    """A request that was begun is answered, and so is one that could not be accepted before."""
    with running(classification.path) as server, contextlib.ExitStack() as stack:
        pid = server.process.pid
        begun = stack.enter_context(contextlib.closing(server.socket()))
        begun.sendall(REQUEST[:-5])
        idle = stack.enter_context(contextlib.closing(server.socket()))
        assert ask(idle) == b"200"
        handles = {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        limit = next(number for number in range(len(handles) + 1) if number not in handles)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
        server.process.terminate()
        server.wait_for("Shutting down")
        begun.sendall(REQUEST[-5:])
        assert answer(begun) == b"200"
        assert server.process.wait(TIMEOUT) == 0
        server.wait_for_end_of_log()
        assert not [line for line in server.lines if "Traceback" in line]


@pytest.mark.slow
@pytest.mark.parametrize("parent_first", [True, False])
def test_a_signal_to_every_process_drains_once(classification: Synthetic, parent_first: bool) -> None:
    drain = 2.0
    with two_workers(classification.path, DEMUR_DRAIN_SECONDS=str(drain)) as server:
        processes = [server.process.pid, *pids(server)]
        start = time.monotonic()
        for pid in processes if parent_first else reversed(processes):
            os.kill(pid, signal.SIGTERM)
        answered = 0
        while time.monotonic() < start + drain / 2:
            with contextlib.closing(server.socket()) as connection:
                assert ask(connection) == b"200"
            answered += 1
        assert answered
        assert server.process.wait(TIMEOUT) == 0
        assert time.monotonic() - start >= drain
        server.wait_for_end_of_log()
        assert len([line for line in server.lines if "Finished server process" in line]) == 2
        assert not [line for line in server.lines if "starting another" in line or "ERROR" in line]


@pytest.mark.slow
def test_one_worker_that_is_told_to_stop_leaves_the_socket_to_the_others(classification: Synthetic) -> None:
    with two_workers(classification.path) as server:
        first, _ = pids(server)
        os.kill(first, signal.SIGTERM)
        server.wait_for(rf"Worker {first} ended with status 0: starting another")
        with contextlib.closing(server.socket()) as connection:
            assert ask(connection) == b"200"
        assert server.terminate() == 0


def hears_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def child_of(pid: int) -> int | None:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if found else None


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_process_1_that_starts_ends_at_once(tmp_path: Path) -> None:
    """The kernel ignores signals without a handler for process 1, and a handler in Python does not run while a library
    loads a network, which never ends here."""
    bundle = write_hanging(tmp_path / "bundle", tmp_path / "plain", magic=0.0)
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "demur.service", str(bundle)]
    with subprocess.Popen([*command, "--port", "0"], cwd=ROOT, env=environment()) as process:
        try:
            wait_until(lambda: child_of(process.pid) is not None)
            child = child_of(process.pid)
            assert child is not None
            wait_until(lambda: hears_sigterm(child))
            mapped = Path(f"/proc/{child}/maps")
            wait_until(lambda: "onnxruntime" in mapped.read_text())  # the network is being loaded
            os.kill(child, signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.slow
def test_it_ends_while_a_network_is_tried_that_never_comes_to_an_end(classification: Synthetic, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    extra = {"DEMUR_MODELS": str(models), "DEMUR_WATCH_SECONDS": "0.2", "DEMUR_SHUTDOWN_SECONDS": "1"}
    with running(classification.path, **extra) as server:
        bundle = write_hanging(tmp_path / "bundle", tmp_path / "plain", magic=0.0)
        bundle.rename(models / "hanging")
        wait_until(lambda: any(cpu_seconds(child) > 2 for child in children_of(server.process.pid)))
        with contextlib.closing(server.socket()) as connection:
            assert ask(connection) == b"200"
        start = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - start < 20


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
