"""How the service starts, refuses to start, and ends."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
import uvicorn
from typer.testing import CliRunner

from demur.service.__main__ import serve
from demur.service.app import create_app
from demur.service.http.request_id import current_id, make_current
from demur.service.inference.predictor import Predictor
from demur.service.process.server import Server, handled_signals
from demur.service.schemas import PredictResponse
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import PROBLEM_TYPE
from tests.support.model_folders import bundle as write_bundle
from tests.support.processes import usual_signals, wait_until
from tests.support.requests import GOOD
from tests.support.server import ROOT, RUNNING, TIMEOUT, environment, run_to_end, running, starting, starting_at
from tests.support.server import Server as RunningServer

GOOD_BODY = json.dumps({"inputs": GOOD}).encode()


def test_sigterm_ends_it_with_status_0(classification: Synthetic) -> None:
    with running(classification.path, DEMUR_DATA_DIR="/somewhere") as server:
        assert server.request("GET", "/health/ready")[0] == 200
        assert server.terminate() == 0
        assert not [line for line in server.lines if "Traceback" in line or "ERROR" in line]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_other_signals_cut_no_request(classification: Synthetic, workers: str) -> None:
    """SIGHUP of a terminal that closes drains; SIGUSR1 and SIGUSR2 mean nothing."""
    with (
        usual_signals(),
        terminal() as stdin,
        starting_at(
            stdin, [str(classification.path)], {"DEMUR_DRAIN_SECONDS": "0.1", "DEMUR_WORKERS": workers}
        ) as server,
    ):
        server.port = int(server.wait_for(RUNNING)[1])
        with contextlib.closing(server.socket()) as connection:
            check_it_drains(server, connection)


def test_debug_messages_tell_of_every_prediction_and_refusal(classification: Synthetic) -> None:
    with running(classification.path, DEMUR_LOG_LEVEL="debug") as server:
        for body, status in ((GOOD_BODY, 200), (b"{", 400)):
            found = server.request("POST", "/predict", body, {"X-Request-ID": f"asked-{status}"})
            assert found[0] == status
        server.wait_for(r"synthetic version 1: 1 examples, \d rejected; waited .* request=asked-200")
        server.wait_for("refused, 400 json: .* request=asked-400")
        assert server.terminate() == 0


def check_it_drains(server: RunningServer, connection: socket.socket) -> None:
    """A request that has begun is answered."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        server.process.send_signal(number)
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(GOOD_BODY)}\r\n\r\n"
    connection.sendall(head.encode() + GOOD_BODY[:10])
    wait_for_request_in_flight(server)
    server.process.send_signal(signal.SIGHUP)
    server.wait_for("Shutting down")
    connection.sendall(GOOD_BODY[10:])
    assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert server.process.wait(TIMEOUT) == 0


@contextlib.contextmanager
def terminal() -> Iterator[int]:
    """The end of a terminal that a process has."""
    ours, theirs = os.openpty()
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_a_terminal_sighup_looks_for_bundles(classification: Synthetic, tmp_path: Path, workers: str) -> None:
    write_bundle(tmp_path / "a", "a")
    with usual_signals(), starting("--models", str(tmp_path), DEMUR_WORKERS=workers) as server:
        server.port = int(server.wait_for(RUNNING)[1])
        server.wait_for("serving a version 1")
        write_bundle(tmp_path / "b", "b")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: sum("serving b version 1" in line for line in server.lines) == int(workers))
        assert server.request("GET", "/models/b")[0] == 200
        assert server.terminate() == 0


def test_signals_that_ask_for_something_do_nothing_before_it_runs(classification: Synthetic) -> None:
    with usual_signals(), starting(str(classification.path)) as server:
        said = Path(f"/proc/{server.process.pid}/status")
        wait_until(lambda: all(is_caught(said, number) for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)))
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            server.process.send_signal(number)
        server.port = int(server.wait_for(RUNNING)[1])
        assert server.request("GET", "/health/live")[0] == 200
        assert server.terminate() == 0


def is_caught(status: Path, number: signal.Signals) -> bool:
    """Whether the process, whose file in /proc this is, has a handler for the signal."""
    (caught,) = re.findall(r"^SigCgt:\s+(\w+)$", status.read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_the_log_names_no_request_where_a_signal_came_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(uvicorn.Config(create_app([], Settings())))
    said = list[str | None]()

    async def test() -> None:
        monkeypatch.setattr(server, "_event_loop", asyncio.get_running_loop())
        make_current("mine")
        monkeypatch.setattr(server, "_reload", lambda: said.append(current_id()))
        monkeypatch.setattr(server, "_of_terminal", False)
        server.handle_signal(signal.SIGHUP, None)
        await asyncio.sleep(0)

    asyncio.run(test())
    assert said == [None]


def test_nohup_is_heeded() -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handled_signals(lambda *_: None):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


def wait_for_request_in_flight(server: RunningServer) -> None:
    wait_until(lambda: b"demur_http_requests_in_flight 2.0\n" in server.request("GET", "/metrics")[2])


def test_a_request_that_was_begun_is_answered_before_the_end(classification: Synthetic) -> None:
    with running(classification.path) as server, contextlib.closing(server.socket()) as connection:
        head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(GOOD_BODY)}\r\n\r\n"
        connection.sendall(head.encode() + GOOD_BODY[:10])
        wait_for_request_in_flight(server)
        server.process.terminate()
        server.wait_for("Shutting down")
        connection.sendall(GOOD_BODY[10:])
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200 ")
        PredictResponse.model_validate_json(answer.partition(b"\r\n\r\n")[2])
        assert server.process.wait(TIMEOUT) == 0


def test_a_connection_that_was_just_made_is_answered_before_the_end(classification: Synthetic) -> None:
    with running(classification.path) as server, contextlib.closing(server.socket()) as connection:
        assert server.request("GET", "/health/live")[0] == 200  # the service has accepted the connection before
        server.process.terminate()
        server.wait_for("Shutting down")
        head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(GOOD_BODY)}\r\n\r\n"
        connection.sendall(head.encode() + GOOD_BODY)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer.lower()
        assert server.process.wait(TIMEOUT) == 0


def test_a_request_over_a_kept_connection_is_answered_before_the_end(classification: Synthetic) -> None:
    with running(classification.path) as server, contextlib.closing(server.socket()) as connection:
        request = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.sendall(request)
        first = b""
        while not first.endswith(b'"live"}'):
            first += connection.recv(65536)
        server.process.terminate()
        server.wait_for("Shutting down")
        connection.sendall(request)  # as if it had been on its way
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer.lower()
        assert server.process.wait(TIMEOUT) == 0


def test_a_client_that_never_finishes_does_not_keep_it_alive(classification: Synthetic) -> None:
    with (
        running(classification.path, DEMUR_SHUTDOWN_SECONDS="1") as server,
        contextlib.closing(server.socket()) as connection,
    ):
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        wait_for_request_in_flight(server)
        server.process.terminate()
        assert server.process.wait(TIMEOUT) == 0
        server.wait_for_end_of_log()
        assert not [line for line in server.lines if "Traceback" in line or "Exception" in line]


def test_settings_come_from_the_environment(classification: Synthetic) -> None:
    with running(classification.path, DEMUR_MAX_ROWS="1", DEMUR_THREADS="1") as server:
        body = json.dumps({"inputs": [GOOD, GOOD]}).encode()
        status, headers, answer = server.request("POST", "/predict", body)
        assert (status, headers["content-type"]) == (413, PROBLEM_TYPE)
        assert b"at most 1 in one request" in answer


def in_process(*arguments: str, **extra: str) -> tuple[int, str, str]:
    """Exit status, standard output and error of the command line, in this process."""
    command = typer.Typer()
    command.command()(serve)
    cleared: dict[str, str | None] = dict.fromkeys(os.environ.keys() - environment().keys())
    result = CliRunner().invoke(command, list(arguments), env=cleared | extra)
    return result.exit_code, result.stdout, result.stderr


def assert_refused(ended: tuple[int, str, str], *fragments: str) -> None:
    """Check for status 2 and a single line on standard error with the reason."""
    status, out, errors = ended
    assert status == 2, errors
    assert out == ""
    (line,) = errors.splitlines()
    assert line.startswith("error: ")
    for fragment in fragments:
        assert fragment in line


def test_a_bad_bundle_is_refused(tmp_path: Path, folder: Path) -> None:
    missing = str(tmp_path / "nothing")
    for run in (run_to_end, in_process):
        assert_refused(run(missing), missing, "no such folder", "remedy: ")
    (folder / "model.onnx").write_bytes(b"changed")
    assert_refused(in_process(DEMUR_BUNDLE=str(folder)), str(folder / "model.onnx"), "remedy: ")


def test_no_bundle_is_refused() -> None:
    assert_refused(in_process(), "DEMUR_BUNDLE", "no bundle given")


def test_an_unknown_variable_is_refused(classification: Synthetic) -> None:
    for run in (run_to_end, in_process):
        ended = run(str(classification.path), DEMUR_PROT="9000")
        assert_refused(ended, "DEMUR_PROT: unknown setting", "DEMUR_PORT")


def test_a_wrong_value_is_refused(classification: Synthetic) -> None:
    assert_refused(in_process(str(classification.path), DEMUR_PORT="abc"), "DEMUR_PORT", "abc")
    assert_refused(in_process(str(classification.path), "--port", "70000"), "PORT", "70000")


def test_a_port_in_use_is_an_error(classification: Synthetic) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, errors = run_to_end(str(classification.path), "--port", str(port))
    assert status not in (0, 2)
    assert "address already in use" in errors
    assert "Traceback" not in errors


def test_help_needs_no_bundle() -> None:
    status, out, _ = in_process("--help")
    assert status == 0
    assert "DEMUR_BUNDLE" in out


TORCH_FREE = """
import importlib.abc, json, sys

FORBIDDEN = {"torch", "onnx", "onnxscript", "sklearn", "scipy", "offline", "httpx", "rich", "pygments"}

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in FORBIDDEN or name.partition(".")[0] in FORBIDDEN:
            raise ImportError(f"{name} must not be imported by the service")

sys.meta_path.insert(0, Block())

import numpy as np
import demur.service.__main__
from demur.service import Predictor
from demur.service.settings import Settings

for bundle, inputs in json.loads(sys.argv[1]):
    server = demur.service.__main__.build_server(Settings(bundle=bundle, port=0, threads=1))
    assert server.config.app.title == "Demur"
    prediction = Predictor.load(bundle).predict(np.array(inputs, np.float32))
    print(json.dumps({"mean": prediction.mean.tolist(), "variance": prediction.variance.tolist()}))
assert not FORBIDDEN & set(sys.modules), sorted(FORBIDDEN & set(sys.modules))
"""


def test_it_runs_where_torch_and_the_offline_job_cannot_be_imported(
    classification: Synthetic, images: Synthetic, regression: Synthetic, single_regression: Synthetic
) -> None:
    bundles = (classification, images, regression, single_regression)
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(3, *bundle.manifest.input.shape)).round(3) for bundle in bundles]
    tasks = [(str(bundle.path), batch.tolist()) for bundle, batch in zip(bundles, inputs, strict=True)]
    command = [sys.executable, "-W", "error", "-c", TORCH_FREE, json.dumps(tasks)]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment(), text=True, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert ended.returncode == 0, ended.stderr
    for bundle, batch, line in zip(bundles, inputs, ended.stdout.splitlines(), strict=True):
        found = json.loads(line)
        np.testing.assert_allclose(found["mean"], bundle.mean(batch), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["variance"], bundle.variance(batch), rtol=1e-4, atol=1e-5)


def test_a_signal_turns_readiness_off_and_is_forgotten_afterwards(classification: Synthetic) -> None:
    """In this process: the handler's effect, and that earlier handlers are restored."""
    app = create_app(Predictor.load(classification.path), Settings())
    app.state.runtime = SimpleNamespace(draining=False)
    server = Server(uvicorn.Config(app))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with server.capture_signals():
        assert signal.getsignal(signal.SIGTERM) == server.handle_signal
        server.handle_exit(signal.SIGTERM, None)
    assert app.state.runtime.draining
    assert server.should_exit
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.parametrize("computes", [True, False])
def test_signs_of_life_come_every_second_while_it_computes(classification: Synthetic, computes: bool) -> None:
    app, signs = create_app(Predictor.load(classification.path), Settings()), list[None]()
    app.state.runtime = SimpleNamespace(alive=computes, check_computation=lambda: None)
    server = Server(uvicorn.Config(app), heartbeat=lambda: signs.append(None))
    server.servers = []  # as if started, without a socket

    async def ticks() -> None:
        for counter in range(20):
            await server.on_tick(counter)

    asyncio.run(ticks())
    assert len(signs) == 2 * computes
