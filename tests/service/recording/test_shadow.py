"""A version in the shadow: what it would answer is counted, and nobody notices."""

import io
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from demur.service.bundle import InputSpec
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from demur.service.models.store import ModelStore
from demur.service.monitoring.background import QUEUED_NUMBERS
from demur.service.monitoring.metrics import Metrics
from demur.service.recording import shadow
from demur.service.recording.shadow import _Child
from demur.service.recording.shadow_process import Task, frame, next_frame, serve
from demur.service.settings.shadow import ShadowChoice
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.processes import wait_until
from tests.support.server import RUNNING, TIMEOUT, Server, starting

FEATURE_SPEC_OTHER = InputSpec(shape=(4,), feature_names=("d", "c", "b", "a"))
INPUTS = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)


def bundle(folder: Path, version: str, **changes: Any) -> Path:
    given: dict[str, Any] = {"outputs": 3, "spec": FEATURE_SPEC, "name": "a", "version": version}
    return write_linear(folder, **(given | changes)).path


def packed(predictor: Predictor, inputs: np.ndarray = INPUTS) -> bytes:
    found = predictor.predict(inputs)
    assert found.probabilities is not None
    arrays = {"probabilities": found.probabilities, "mean": found.mean, "rejected": found.rejected}
    return frame({"inputs": inputs, "p_value": found.p_value, **arrays})


def task(folder: Path) -> Task:
    return Task(str(folder), Predictor.load(folder).digest, {})


def line(one: Task) -> bytes:
    return json.dumps(vars(one)).encode() + b"\n"


def test_the_process_says_how_they_differ_and_goes_on_after_what_fails(tmp_path: Path) -> None:
    first, second = Predictor.load(bundle(tmp_path / "1", "1")), bundle(tmp_path / "2", "2", seed=3)
    narrow = frame({**first.predict(INPUTS[:1]).compared, "inputs": INPUTS[:1, :3]})
    asked = packed(first), packed(Predictor.load(second)), narrow
    out = io.BytesIO()
    serve(io.BytesIO(line(task(second)) + asked[0] + asked[2] + asked[1] + b"half"), out)
    differ, odd, same = map(json.loads, out.getvalue().splitlines())
    expected = Predictor.load(second).predict(INPUTS)
    own = first.predict(INPUTS)
    assert own.probabilities is not None
    assert expected.probabilities is not None
    changed = (own.probabilities.argmax(1) != expected.probabilities.argmax(1)).sum()
    assert differ["examples"] == len(INPUTS)
    assert differ["changed"] == changed > 0
    assert differ["p_value_distance"] == pytest.approx(np.abs(own.p_value - expected.p_value).sum(), rel=1e-5)
    assert "found shape (1, 3)" in odd["error"]
    assert {name: same[name] for name in ("changed", "newly_rejected", "newly_accepted")} == dict.fromkeys(
        ("changed", "newly_rejected", "newly_accepted"), 0.0
    )


def test_frames_hold_their_arrays_and_half_a_frame_is_the_end() -> None:
    arrays = {
        "inputs": INPUTS[:, ::2],
        "rejected": np.array([True, False]),
        "ids": np.arange(3),
        "none": np.zeros((0, 2)),
    }
    stream = io.BytesIO(frame(arrays) + frame(arrays)[:-1][:20])
    found = next_frame(stream)
    assert found is not None
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert next_frame(stream) is None


def test_another_bundle_in_its_place_is_refused(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "1", "1")
    with pytest.raises(ValueError, match="found the digest"):
        serve(io.BytesIO(line(Task(str(folder), "0" * 64, {}))), io.BytesIO())


def test_a_process_that_ended_says_so(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "1", "1")
    child = _Child(task(folder))
    assert child.alive
    data = packed(Predictor.load(folder))
    assert child.ask(data, TIMEOUT)["examples"] == len(INPUTS)
    if sys.platform == "linux":
        assert os.sched_getscheduler(child._process.pid) == os.SCHED_IDLE  # noqa: SLF001
    child.kill()
    with pytest.raises(OSError, match=r"Broken pipe|ended with status"):
        child.ask(data, TIMEOUT)
    child.close()
    assert not child.alive


def metric(server: Server, name: str) -> float:
    text = server.request("GET", "/metrics")[2].decode()
    found = [
        float(one.rpartition(" ")[2]) for one in text.splitlines() if one.startswith(f"demur_shadow_{name}_total{{")
    ]
    assert len(found) == 1
    return found[0]


def served(tmp_path: Path, **changes: Any) -> Any:
    """Version 1 is pinned, version 2 in its shadow."""
    bundle(tmp_path / "a" / "1", "1")
    bundle(tmp_path / "a" / "2", "2", **changes)
    (tmp_path / "versions.json").write_text('{"a": "1"}')
    settings = {"DEMUR_SHADOW": "a/2@1", "DEMUR_READY_REQUIRES": "all"}
    return starting("--models", str(tmp_path), **settings)


def ask(server: Server, times: int) -> None:
    expected = None
    for _ in range(times):
        status, _, body = server.request("POST", "/predict", json.dumps({"inputs": INPUTS.tolist()}).encode())
        assert status == 200
        answer = json.loads(body)
        assert answer["model"]["version"] == "1"
        expected = expected or answer["predictions"]
        assert answer["predictions"] == expected


@pytest.mark.parametrize(("seed", "differs"), [(0, False), (3, True)])
def test_a_version_in_the_shadow_is_counted(tmp_path: Path, seed: int, differs: bool) -> None:
    with served(tmp_path, seed=seed) as server:
        server.port = int(server.wait_for(RUNNING)[1])
        for version in ("1", "2"):
            server.wait_for(f"serving a version {version}")
        assert metric(server, "examples") == 0
        ask(server, 3)
        wait_until(lambda: metric(server, "examples") == 3 * len(INPUTS))
        assert (metric(server, "changed") > 0) is differs
        assert (metric(server, "p_value_distance") > 0) is differs
        assert metric(server, "lost") == 0


def test_one_that_takes_other_inputs_is_not_compared(tmp_path: Path) -> None:
    with served(tmp_path, spec=FEATURE_SPEC_OTHER) as server:
        server.port = int(server.wait_for(RUNNING)[1])
        for version in ("1", "2"):
            server.wait_for(f"serving a version {version}")
        ask(server, 2)
        server.wait_for("the shadow a version 2 is not compared: it has other inputs")
        assert metric(server, "lost") == 2 * len(INPUTS)
        assert metric(server, "examples") == 0


def test_one_that_hangs_is_killed_and_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "1", "1")
    data = packed(Predictor.load(folder))
    hanging = _Child(task(folder))
    assert hanging.ask(data, TIMEOUT)["examples"] == len(INPUTS)
    hanging._process.send_signal(signal.SIGSTOP)  # noqa: SLF001  as a network that never ends
    with pytest.raises(OSError, match=r"or took longer than 0\.2 s"):
        hanging.ask(data, 0.2)
    hanging.close()
    lost = _Child(Task(str(tmp_path / "nowhere"), "0" * 64, {}))
    assert "no such folder" in lost.ask(data, TIMEOUT)["error"]
    lost.close()


@pytest.mark.parametrize(
    ("choice", "words"),
    [("a/9@1", "the shadow a version 9 is not loaded"), ("a/1@1", "the shadow a version 1 itself answers")],
)
def test_a_choice_that_compares_nothing_is_told(tmp_path: Path, choice: str, words: str) -> None:
    bundle(tmp_path / "1", "1")
    with starting(str(tmp_path / "1"), DEMUR_SHADOW=choice) as server:
        server.wait_for(words)


def test_what_waits_is_bounded_by_what_the_answers_hold_too(tmp_path: Path) -> None:
    """Of many classes, an answer holds far more than its inputs."""
    outputs, rows = 2000, shadow.MOST_ROWS
    predictor = Predictor.load(bundle(tmp_path / "1", "1", outputs=outputs))
    answering = SimpleNamespace(name="a", version="1", manifest=predictor.manifest)
    other = SimpleNamespace(**vars(answering) | {"version": "2"}, predictor=predictor, digest=predictor.digest)
    store: Any = SimpleNamespace(loaded=lambda *_: other)
    metrics = Metrics(CollectorRegistry())
    found = shadow.Shadow(ShadowChoice("a", "2", 1.0), Policy(), store, metrics)
    inputs = np.zeros((rows + 1, 4), np.float32)
    prediction = predictor.predict(inputs)
    for _ in range(5):
        found.offer(cast("Any", answering), prediction, inputs)
    room = QUEUED_NUMBERS // (shadow.ARRAYS * rows * outputs)
    assert metrics.shadow_lost.labels("a", "2")._value.get() == (5 - room) * rows  # noqa: SLF001
    held = sum(array.size for array in vars(prediction).values() if isinstance(array, np.ndarray))
    assert held <= shadow.ARRAYS * prediction.mean.size


def test_one_that_ended_is_started_again_later_however_many_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bundle(tmp_path / "1", "1")
    predictor = Predictor.load(folder)
    prediction = predictor.predict(INPUTS)
    one = shadow._Ask(str(folder), predictor.digest, {"inputs": INPUTS, **prediction.compared})  # noqa: SLF001
    now = [100.0]
    monkeypatch.setattr(shadow, "time", SimpleNamespace(monotonic=lambda: now[0]))
    metrics = Metrics(CollectorRegistry())
    found = shadow.Shadow(ShadowChoice("a", "1", 1.0), Policy(), ModelStore(), metrics, TIMEOUT)

    def counted() -> tuple[float, float]:
        found._compare([one])  # noqa: SLF001
        labels = metrics.shadow_examples.labels("a", "1"), metrics.shadow_lost.labels("a", "1")
        return labels[0]._value.get(), labels[1]._value.get()  # noqa: SLF001

    rows = len(INPUTS)
    assert counted() == (rows, 0)
    found._child.kill()  # type: ignore[union-attr]  # noqa: SLF001
    found._child._process.wait(TIMEOUT)  # type: ignore[union-attr]  # noqa: SLF001
    for times in range(1, 4):  # asked all the time, which puts nothing off
        assert counted() == (rows, times * rows)
        now[0] += shadow.RETRY_SECONDS / 4
    now[0] += shadow.RETRY_SECONDS / 4
    assert counted() == (2 * rows, 3 * rows)
    found._child.close()  # type: ignore[union-attr]  # noqa: SLF001


def test_a_process_that_has_no_time_to_end_is_left_to_do_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the service wants waits for it: it has what processor time nothing else takes. Its end is noted."""
    folder = bundle(tmp_path / "1", "1")
    child = _Child(Task(str(folder), Predictor.load(folder).digest, Policy().model_dump()))
    monkeypatch.setattr(shadow, "END_SECONDS", 0.0)
    child.close()
    wait_until(lambda: child._process.returncode == -signal.SIGKILL)  # noqa: SLF001
