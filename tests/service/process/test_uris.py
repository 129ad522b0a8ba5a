"""`serve URI`: the bundle is fetched at the start, kept, and looked for again."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from demur.service.bundle import MODEL
from demur.service.remote.push import push
from demur.tag import tag_bundle
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.metrics import metric
from tests.support.places import World
from tests.support.places import running as place_of
from tests.support.processes import wait_until
from tests.support.server import RUNNING, Server, run_to_end, starting
from tests.support.signing import KEY, pem


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with place_of("hf", tmp_path) as world:
        for name, value in world.environment.items():
            monkeypatch.setenv(name, value)
        yield world


def outputs(server: Server) -> int:
    body = json.dumps({"inputs": [[1.0, 2.0, 3.0, 4.0]]}).encode()
    status, _, answer = server.request("POST", "/predict", body, {"Content-Type": "application/json"})
    assert status == 200, answer
    return len(json.loads(answer)["predictions"][0]["probabilities"])


def test_what_is_refused_later_is_told_as_of_a_folder(hub: World, classification: Synthetic, tmp_path: Path) -> None:
    push(classification.path, hub.uri)
    audit = tmp_path / "audit.jsonl"
    options = {"DEMUR_CACHE_DIR": str(tmp_path / "cache"), "DEMUR_AUDIT_FILE": str(audit)}
    with starting(hub.uri, **options) as server:
        server.port = int(server.wait_for(RUNNING)[1])

        def stale() -> float:
            return metric(server.request("GET", "/metrics")[2].decode(), "demur_model_stale")

        assert stale() == 0
        other = write_linear(tmp_path / "other", outputs=2, spec=FEATURE_SPEC, seed=5).path
        sound = (other / MODEL).read_bytes()
        push(other, hub.uri)
        hub.put(MODEL, b"cut off")
        os.kill(server.process.pid, signal.SIGHUP)
        server.wait_for("what is served stays")
        wait_until(lambda: stale() == 1)
        assert outputs(server) == 3
        hub.put(MODEL, sound)
        os.kill(server.process.pid, signal.SIGHUP)
        wait_until(lambda: stale() == 0)
        wait_until(lambda: outputs(server) == 2)
        assert server.terminate() == 0
    refused = [line for line in map(json.loads, audit.read_text().splitlines()) if line.get("event") == "refused"]
    assert len(refused) == 1
    assert MODEL in refused[0]["problem"]


def test_it_is_fetched_kept_and_looked_for_again(hub: World, classification: Synthetic, tmp_path: Path) -> None:
    push(classification.path, hub.uri)
    options = {"DEMUR_CACHE_DIR": str(tmp_path / "cache"), "DEMUR_MODEL_NAME": "digits"}
    with starting(hub.uri, **options) as server:
        server.port = int(server.wait_for(RUNNING)[1])
        server.wait_for(f"settings: .*DEMUR_BUNDLE={hub.uri}")
        assert outputs(server) == 3
        assert b"digits" in server.request("GET", "/v2/models/digits")[2]

        other = write_linear(tmp_path / "other", outputs=2, spec=FEATURE_SPEC, seed=5).path
        push(other, hub.uri)
        start = server.lines_so_far()
        os.kill(server.process.pid, signal.SIGHUP)
        server.wait_for("serving digits version 1", start)
        hub.refuse(500)
        os.kill(server.process.pid, signal.SIGHUP)
        server.wait_for("answered 500.*what is served stays")
        assert outputs(server) == 2
        assert server.terminate() == 0
    beside = tmp_path / "beside"
    tag_bundle(classification.path, beside, name="beside")
    with starting(DEMUR_BUNDLE=f"{hub.uri},{beside}", **{**options, "DEMUR_MODEL_NAME": ""}) as again:
        again.port = int(again.wait_for(RUNNING)[1])
        again.wait_for("WARNING: .*taking the copy of before")
        assert outputs(again) == 2


def test_what_cannot_be_had_ends_the_start(hub: World, classification: Synthetic, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    status, _, errors = run_to_end(hub.uri, DEMUR_CACHE_DIR=cache)
    assert status == 2
    assert errors.splitlines()[-1].startswith("error: ")
    assert "found no such repository" in errors
    push(classification.path, hub.uri)
    (tmp_path / "trusted.pem").write_text(pem(KEY))
    trusted = str(tmp_path / "trusted.pem")
    status, _, errors = run_to_end(hub.uri, DEMUR_CACHE_DIR=cache, DEMUR_TRUSTED_KEYS=trusted)
    assert status == 2
    assert f"{hub.uri}/signature.json: found no signature" in errors
