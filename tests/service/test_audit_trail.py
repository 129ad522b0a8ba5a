"""The audit trail of a running service: every answered example has its line, and the answer's id finds it."""

import asyncio
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.app import create_app
from demur.service.inference.predictor import Predictor
from demur.service.security.api_keys import new_key
from demur.service.settings import Settings
from tests.support.batching import until
from tests.support.bundles import Synthetic, rewrite
from tests.support.client import Client, problem, serving
from tests.support.processes import wait_until, written_lines
from tests.support.server import run_to_end, running
from tests.support.v2 import GOOD, VALUES, binary, post

Json = dict[str, Any]
ROWS = [[0.5, -1.0, 2.0, 0.25], [1.0, 2.0, 3.0, 4.0], [9.0, 9.0, -9.0, 9.0]]


def all_lines(file: Path) -> list[Json]:
    return [json.loads(line) for line in written_lines(file)]


def lines_of(file: Path) -> list[Json]:
    """Those of answers."""
    return [line for line in all_lines(file) if "event" not in line]


def assert_explained(file: Path) -> None:
    """Each answer's settings and bundle are said before it in the same file, by the process that gave it."""
    settings, bundles = dict[int, str](), dict[tuple[int, str], str]()
    for line in all_lines(file):
        process, event = line["process"], line.get("event")
        if event == "started":
            settings[process] = line["settings"]
        elif event == "loaded":
            bundles[process, line["place"]] = line["digest"]
        elif event is None:
            assert process in settings
            assert line["digest"] in (digest for (owner, _), digest in bundles.items() if owner == process)


def predict(client: Client, **headers: str) -> Json:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = client.request(
        "POST", "/predict?detail=full", content=json.dumps({"inputs": ROWS}).encode(), headers=named
    )
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def test_each_example_has_a_line_that_says_what_was_answered(classification: Synthetic, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with serving(Predictor.load(classification.path), Settings(audit_file=file, requested_rates=(0.1, 0.9))) as client:
        answers = [predict(client), predict(client, x_request_id="mine-1")]
    lines = lines_of(file)
    assert [(line["id"], line["index"]) for line in lines] == [(a["id"], i) for a in answers for i in range(len(ROWS))]
    assert answers[1]["id"] == "mine-1"
    assert re.fullmatch("[0-9a-f]{32}", answers[0]["id"])
    for line, answer in zip(lines, [p for a in answers for p in a["predictions"]], strict=True):
        assert (line["label"], line["rejected"]) == (answer["label"], answer["rejected"])
        for number in ("probability", "score", "p_value", "threshold", "false_reject_rate"):
            assert line[number] == pytest.approx(answer[number], rel=1e-5)
        assert {"model": line["model"], "version": line["version"], "digest": line["digest"]} == {
            "model": answers[0]["model"]["name"],
            "version": answers[0]["model"]["version"],
            "digest": answers[0]["model"]["digest"],
        }
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])
        assert "inputs" not in line


def test_a_trial_is_marked(classification: Synthetic, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with serving(Predictor.load(classification.path), Settings(audit_file=file)) as client:
        for query in ("", "?trial=true"):
            assert client.predict({"inputs": ROWS}, query).status_code == 200
    assert [line.get("trial") for line in lines_of(file)] == [None] * len(ROWS) + [True] * len(ROWS)


def test_inputs_are_kept_where_they_are_asked_for(regression: Synthetic, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with serving(Predictor.load(regression.path), Settings(audit_file=file, audit_inputs=True)) as client:
        rows = [row[:3] for row in ROWS]
        response = client.request("POST", "/predict?detail=full", content=json.dumps({"inputs": rows}).encode())
    answers = response.json()["predictions"]
    assert [line["inputs"] for line in lines_of(file)] == rows
    for line, answer in zip(lines_of(file), answers, strict=True):
        assert line["mean"] == pytest.approx(answer["mean"], rel=1e-5)


def test_v2_too(classification: Synthetic, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with serving(Predictor.load(classification.path), Settings(audit_file=file)) as client:
        post(client, GOOD | {"id": "theirs"})
        body, headers = binary(VALUES)
        client.request("POST", "/v2/models/synthetic/infer", content=body, headers=headers | {"X-Request-ID": "proxy"})
        post(client, GOOD)
    ids = [line["id"] for line in lines_of(file)]
    assert ids[:4] == ["theirs", "theirs", "proxy", "proxy"]
    assert ids[4] == ids[5]
    assert re.fullmatch("[0-9a-f]{32}", ids[4])


def test_what_happens_to_the_service_has_a_line_too(
    classification: Synthetic, regression: Synthetic, tmp_path: Path
) -> None:
    file, models = tmp_path / "audit.jsonl", tmp_path / "models"
    first, second = models / "a" / "1", models / "b"
    shutil.copytree(classification.path, first)
    app = create_app([], Settings(audit_file=file, models=models, request_timeout_seconds=7))

    async def live() -> None:
        async with app.router.lifespan_context(app):
            repository = app.state.runtime.repository
            await until(lambda: not repository.store.loading)
            shutil.copytree(regression.path, second)
            (second / "model.onnx").write_bytes(b"none")
            await repository.refresh()
            other = replace(classification.manifest, temperature=2.0)
            rewrite(classification.path, tmp_path / "new", manifest=other)
            (tmp_path / "new" / "manifest.json").replace(first / "manifest.json")
            await repository.refresh()
            (models / "versions.json").write_text('{"synthetic": "1"}')
            shutil.rmtree(first)
            for _ in range(3):
                await repository.refresh()

    asyncio.run(live())
    events = all_lines(file)
    names = ["started", "loaded", "refused", "loaded", "pinned", "unloaded", "stopped"]
    assert [line["event"] for line in events] == names
    assert {line["process"] for line in events} == {os.getpid()}
    started, loaded, refused, swapped, pinned, unloaded, _ = events
    assert "DEMUR_REQUEST_TIMEOUT_SECONDS=7" in started["settings"]
    assert (loaded["model"], loaded["version"], loaded["replaced"]) == ("synthetic", "1", None)
    assert (refused["place"], "model.onnx" in refused["problem"]) == (str(second), True)
    assert swapped["replaced"] == loaded["digest"] != swapped["digest"]
    assert pinned["versions"] == {"synthetic": "version 1"}
    assert (unloaded["digest"], unloaded["place"]) == (swapped["digest"], loaded["place"])


def test_a_file_that_is_begun_anew_says_what_holds(classification: Synthetic, tmp_path: Path) -> None:
    file, moved = tmp_path / "audit.jsonl", tmp_path / "moved.jsonl"
    settings = Settings(audit_file=file, request_timeout_seconds=7)
    with serving(Predictor.load(classification.path), settings) as client:
        predict(client)
        wait_until(lambda: len(lines_of(file)) == len(ROWS))
        file.rename(moved)
        predict(client)
    before, after = all_lines(moved), all_lines(file)
    assert [line["event"] for line in before[:2]] == ["started", "loaded"]
    assert after[:2] == [{**line, "repeated": True} for line in before[:2]]
    assert "DEMUR_REQUEST_TIMEOUT_SECONDS=7" in after[0]["settings"]
    assert after[2]["digest"] == after[1]["digest"]
    assert [line.get("event") for line in after[2:]] == [None] * len(ROWS) + ["stopped"]
    assert_explained(file)


@pytest.mark.parametrize("text", ["", "two words", "a" * 129, "caf\u00e9"])
def test_an_id_that_is_none_is_refused(client: Client, text: str) -> None:
    response = client.request(
        "POST", "/predict", content=b'{"inputs": [1, 2, 3, 4]}', headers={"X-Request-ID": text.encode("latin-1")}
    )
    assert "1 to 128 visible ASCII characters" in problem(response, 422, "field").detail


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_file_that_cannot_be_written_is_known_at_the_start(
    classification: Synthetic, tmp_path: Path, workers: str
) -> None:
    missing = tmp_path / "missing" / "audit"
    status, _, message = run_to_end(
        str(classification.path), "--port", "0", DEMUR_AUDIT_FILE=str(missing), DEMUR_WORKERS=workers
    )
    assert status == 2
    assert message.startswith(f"error: {missing}: cannot be written (No such file or directory)")
    assert message.count("\n") == 1


@pytest.mark.slow
def test_workers_share_the_file(classification: Synthetic, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    variables = {"DEMUR_AUDIT_FILE": str(file), "DEMUR_AUDIT_BYTES": "100000"}
    body = json.dumps({"inputs": np.zeros((2, 4)).tolist()}).encode()
    ids = set()
    with running(classification.path, DEMUR_WORKERS="2", **variables) as server:
        for _ in range(40):
            status, _, answer = server.request("POST", "/predict", body, {"Content-Type": "application/json"})
            assert status == 200
            ids.add(json.loads(answer)["id"])
        assert server.terminate() == 0
    files = list(tmp_path.iterdir())
    assert len(files) > 1
    for path in files:
        assert_explained(path)
    found = [(line["id"], line["index"]) for path in files for line in lines_of(path)]
    assert sorted(found) == sorted((one, index) for one in ids for index in (0, 1))
    assert len(ids) == 40


def test_a_line_says_who_asked(classification: Synthetic, tmp_path: Path) -> None:
    file, keys = tmp_path / "audit.jsonl", tmp_path / "keys"
    key, entry = new_key("partner-7")
    keys.write_text(f"{entry.line}\n")
    with serving(Predictor.load(classification.path), Settings(audit_file=file, api_keys_file=keys)) as client:
        predict(client, authorization=f"Bearer {key}")
        answered = client.request(
            "POST", "/v2/models/synthetic/infer", content=json.dumps(GOOD).encode(), headers={"x-api-key": key}
        )
        assert answered.status_code == 200, answered.text
    lines = lines_of(file)
    assert {(line["client"], line["key"]) for line in lines} == {("127.0.0.1", "partner-7")}
    assert key not in file.read_text()


def test_without_keys_there_is_no_name(classification: Synthetic, tmp_path: Path) -> None:
    with serving(Predictor.load(classification.path), Settings(audit_file=tmp_path / "audit")) as client:
        predict(client)
    assert {line["key"] for line in lines_of(tmp_path / "audit")} == {None}


def test_standard_output_takes_the_lines_beside_the_log(classification: Synthetic, tmp_path: Path) -> None:
    with running(classification.path, DEMUR_AUDIT_FILE="-", DEMUR_LOG_FORMAT="json") as server:
        body = json.dumps({"inputs": ROWS}).encode()
        status, _, answer = server.request("POST", "/predict", body, {"Content-Type": "application/json"})
        assert status == 200
        identity = json.loads(answer)["id"]
        server.wait_for(f'"id":"{identity}".*"index":{len(ROWS) - 1}')
        assert server.terminate() == 0
    audited = [json.loads(line) for line in server.lines if identity in line and "digest" in line]
    assert [line["index"] for line in audited] == list(range(len(ROWS)))
    assert {line["client"] for line in audited} == {"127.0.0.1"}
    assert not [*tmp_path.iterdir()]
