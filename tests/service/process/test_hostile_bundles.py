"""The real service with bundles that hang, take all memory or have absurd inputs: it serves the others, and ends."""

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bundles import Synthetic
from tests.support.hostile import bundle, endless, greedy, huge_input, many_dimensions
from tests.support.processes import wait_until
from tests.support.requests import GOOD
from tests.support.server import RUNNING as RUNNING_LINE
from tests.support.server import TIMEOUT, Server, run_to_end, starting

BODY = json.dumps({"inputs": GOOD}).encode()
# Longer than any test: what ends earlier did not wait for it.
NEVER = str(10 * TIMEOUT)


@contextlib.contextmanager
def serving(*arguments: str, **extra: str) -> Iterator[Server]:
    with starting(*arguments, **extra) as server:
        server.port = int(server.wait_for(RUNNING_LINE)[1])
        yield server


@contextlib.contextmanager
def loaded(*arguments: str, **extra: str) -> Iterator[Server]:
    """`serving`, once every bundle of the start was tried."""
    with serving(*arguments, **extra) as server:
        wait_until(lambda: json.loads(server.request("GET", "/health/ready")[2]).get("code") != "loading")
        yield server


def predict(server: Server, model: str) -> int:
    return server.request("POST", f"/models/{model}/predict", BODY)[0]


def wait_until_served(server: Server, model: str) -> None:
    server.wait_for(rf"serving {model} version 1")
    assert predict(server, model) == 200


def ready(server: Server) -> tuple[int, str]:
    status, _, body = server.request("GET", "/health/ready")
    return status, body.decode()


def trial_of(server: Server) -> int:
    """The process that tries a new bundle for the server, once it exists."""
    children = Path(f"/proc/{server.process.pid}/task")
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        for task in children.iterdir():
            with contextlib.suppress(OSError):
                for pid in (task / "children").read_text().split():
                    if b"demur.service.models.trial_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
    pytest.fail("no bundle was tried")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with a good bundle among bad ones, some of them earlier in the alphabet."""
    folder = tmp_path / "models"
    endless(folder / "endless")
    greedy(folder / "greedy")
    many_dimensions(folder / "dimensions")
    huge_input(folder / "huge")
    bundle(folder / "good", "good")
    return folder


BAD = ["dimensions", "endless", "greedy", "huge"]


@pytest.mark.slow
def test_a_good_bundle_among_bad_ones_is_served(models: Path) -> None:
    """Where readiness demands all, it names the missing ones."""
    limits = {"DEMUR_COMPUTE_TIMEOUT_SECONDS": "15", "DEMUR_TRIAL_BYTES": str(2**30)}
    with loaded("--models", str(models), **limits, DEMUR_READY_REQUIRES="all") as server:
        assert predict(server, "good") == 200
        for name in BAD:
            server.wait_for(rf"{models / name}: not loaded, nothing is served: ")
        text = server.request("GET", "/metrics")[2].decode()
        stale = re.findall(r'^demur_model_stale\{model="(\w+)"\} 1\.0$', text, re.MULTILINE)
        assert sorted(stale) == BAD
        status, detail = ready(server)
        assert status == 503
        assert json.loads(detail)["code"] == "models_missing"
        assert ", ".join(BAD) in detail
        status, _, body = server.request("GET", "/v2/health/ready")
        assert status == 503
        assert ", ".join(BAD) in json.loads(body)["error"]
        assert server.request("GET", "/health/live")[0] == 200
        assert server.terminate() == 0
        assert not [line for line in server.lines if "Traceback" in line]


@pytest.mark.slow
def test_the_default_model_is_demanded_where_it_is_named(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a")
    (bundle(tmp_path / "b", "b") / "model.onnx").write_bytes(b"corrupt")
    for default, requires, expected in (("b", "named", 503), ("b", "any", 200), ("a", "named", 200)):
        extra = {"DEMUR_DEFAULT_MODEL": default, "DEMUR_READY_REQUIRES": requires}
        with loaded("--models", str(tmp_path), **extra) as server:
            status, detail = ready(server)
            assert status == expected, detail
            assert status == 200 or "Not loaded: b." in detail


@pytest.mark.parametrize(
    "make",
    [pytest.param(endless, marks=pytest.mark.slow), greedy, many_dimensions, huge_input],
    ids=lambda f: f.__name__,
)
def test_a_bad_bundle_that_is_named_is_one_line(tmp_path: Path, make: object) -> None:
    assert callable(make)
    folder = make(tmp_path / "bundle")
    limits = {"DEMUR_COMPUTE_TIMEOUT_SECONDS": "5", "DEMUR_TRIAL_BYTES": str(2**30)}
    status, out, errors = run_to_end(str(folder), **limits)
    assert (status, out) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"error: {folder}")
    assert "(remedy: " in line


@pytest.mark.slow
def test_it_ends_while_it_starts(tmp_path: Path) -> None:
    endless(tmp_path / "endless")
    with starting("--models", str(tmp_path), DEMUR_COMPUTE_TIMEOUT_SECONDS=NEVER) as server:
        trial = trial_of(server)
        assert server.terminate() == 0
        assert not Path(f"/proc/{trial}").exists()
        assert not [line for line in server.lines if "Traceback" in line or "ERROR" in line]


@pytest.mark.slow
def test_others_are_loaded_and_it_ends_while_one_is_tried(classification: Synthetic, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    extra = {"DEMUR_COMPUTE_TIMEOUT_SECONDS": NEVER, "DEMUR_WATCH_SECONDS": "0.1"}
    with serving(str(classification.path), "--models", str(models), **extra) as server:
        endless(tmp_path / "endless").rename(models / "endless")
        trial = trial_of(server)
        bundle(tmp_path / "good", "good").rename(models / "good")
        wait_until_served(server, "good")
        assert Path(f"/proc/{trial}").exists()
        assert ready(server)[0] == 200
        assert server.terminate() == 0
        assert not Path(f"/proc/{trial}").exists()
        assert not [line for line in server.lines if "Traceback" in line or "ERROR" in line]


def test_it_says_that_it_lives_and_what_it_waits_for_while_it_loads(tmp_path: Path) -> None:
    endless(tmp_path / "endless")
    bundle(tmp_path / "good", "good")
    for requires in ("named", "any", "all"):
        extra = {"DEMUR_COMPUTE_TIMEOUT_SECONDS": NEVER, "DEMUR_READY_REQUIRES": requires}
        with serving("--models", str(tmp_path), **extra) as server:
            trial_of(server)
            assert server.request("GET", "/health/live")[0] == server.request("GET", "/metrics")[0] == 200
            for path in ("/health/ready", "/models/good"):
                status, headers, body = server.request("GET", path)
                assert (status, json.loads(body)["code"]) == (503, "loading")
            assert headers["retry-after"] == "1"
            assert server.request("POST", "/predict", BODY)[0] == 503
            assert server.terminate() == 0
            assert not [line for line in server.lines if "Traceback" in line]


def test_a_bad_bundle_that_comes_later_takes_no_traffic_away(tmp_path: Path) -> None:
    models = tmp_path / "models"
    bundle(models / "good", "good")
    extra = {"DEMUR_WATCH_SECONDS": "0.1", "DEMUR_READY_REQUIRES": "all"}
    with loaded("--models", str(models), **extra) as server:
        assert ready(server)[0] == 200
        (bundle(tmp_path / "bad", "bad") / "model.onnx").write_bytes(b"corrupt")
        (tmp_path / "bad").rename(models / "bad")
        server.wait_for("bad: not loaded, nothing is served")
        assert ready(server)[0] == predict(server, "good") == 200
    with loaded("--models", str(models), **extra) as server:  # one of the start is demanded, until it is mended
        status, detail = ready(server)
        assert (status, json.loads(detail)["code"]) == (503, "models_missing")
        assert predict(server, "good") == 200
        bundle(tmp_path / "mended", "bad")
        (models / "bad").rename(tmp_path / "bad")
        (tmp_path / "mended").rename(models / "bad")
        wait_until(lambda: ready(server)[0] == 200)


def test_odd_names_of_folders_break_neither_metrics_nor_the_log(tmp_path: Path) -> None:
    bundle(tmp_path / "good", "good")
    forged = "x\nINFO:     all is well"
    for name in (os.fsencode(forged), b"\xff\xfe", b"esc\x1b[2J"):
        folder = os.path.join(os.fsencode(tmp_path), name)  # noqa: PTH118  bytes
        os.mkdir(folder)  # noqa: PTH102
        with open(os.path.join(folder, b"manifest.json"), "wb") as file:  # noqa: PTH118
            file.write(b"nonsense")
    with loaded("--models", str(tmp_path)) as server:
        status, _, text = server.request("GET", "/metrics")
        assert status == 200
        assert 'demur_model_stale{model="\\\\udcff\\\\udcfe"} 1.0' in text.decode()
        assert ready(server)[0] == 200
        assert predict(server, "good") == 200
        assert server.terminate() == 0
        assert not [line for line in server.lines if re.match(r"\d{4}-\d\d-\d\dT", line) is None or "\x1b[2J" in line]
        assert len([line for line in server.lines if "not loaded" in line]) == 3
