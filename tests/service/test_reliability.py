"""A real server under stress: clients that vanish, bundles that change under load, SIGTERM amid work."""

import asyncio
import contextlib
import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.metrics import metric
from tests.support.requests import GOOD
from tests.support.server import ACCESS, TIMEOUT, Server, running

BODY = {"inputs": [GOOD] * 8}
CLIENTS = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bundle(tmp_path / "a", seed=0)


def bundle(folder: Path, seed: int) -> Path:
    return write_linear(folder, outputs=3, spec=FEATURE_SPEC, seed=seed, name="a").path


@contextlib.asynccontextmanager
async def connected(server: Server) -> Any:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    url = f"http://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, limits=limits, trust_env=False) as client:
        yield client


def test_reloading_under_load_fails_nothing_and_mixes_nothing(folder: Path) -> None:
    """Every answer comes whole from one bundle: the digest it names is the one whose numbers it holds."""

    async def test(server: Server) -> None:
        done = asyncio.Event()
        answers: list[tuple[str, str]] = []

        async def ask(client: httpx.AsyncClient) -> None:
            while not done.is_set():
                response = await client.post("/predict", json=BODY)
                assert response.status_code == 200, response.text
                found = response.json()
                answers.append((found["model"]["digest"], json.dumps(found["predictions"])))

        async with connected(server) as client:
            asking = [asyncio.create_task(ask(client)) for _ in range(CLIENTS)]
            for seed in range(1, 4):
                before = (await client.get("/model")).json()["digest"]
                await asyncio.to_thread(bundle, folder, seed)
                while (await client.get("/model")).json()["digest"] == before:
                    assert not any(task.done() for task in asking)
            done.set()
            await asyncio.gather(*asking)
        digests = {digest for digest, _ in answers}
        assert len(digests) == 4
        assert len(set(answers)) == 4

    with running(folder, DEMUR_WATCH_SECONDS="0.05") as server:
        asyncio.run(test(server))


def test_a_bad_bundle_under_load_fails_nothing(folder: Path) -> None:
    async def test(server: Server) -> None:
        async with connected(server) as client:
            (folder / "model.onnx").write_bytes(b"changed")
            (folder / "manifest.json").write_text("{}")
            while metric((await client.get("/metrics")).text, "demur_model_stale") == 0:
                assert (await client.post("/predict", json=BODY)).status_code == 200
            assert (await client.post("/predict", json=BODY)).status_code == 200
            assert (await client.get("/health/ready")).status_code == 200

    with running(folder, DEMUR_WATCH_SECONDS="0.05") as server:
        asyncio.run(test(server))


def test_the_end_in_the_middle_of_work_loses_nothing_that_was_admitted(classification: Synthetic) -> None:
    """SIGTERM under load: every request that reached the service is answered 200, and its client has the response."""

    async def test(server: Server) -> Counter[str]:
        outcomes: Counter[str] = Counter()

        async def ask(client: httpx.AsyncClient) -> None:
            for _ in itertools.count():
                try:
                    response = await client.post("/predict", json=BODY)
                except httpx.ConnectError:
                    outcomes["not connected"] += 1
                    return
                except httpx.TransportError as error:
                    outcomes[type(error).__name__] += 1
                    return
                outcomes[str(response.status_code)] += 1

        async with connected(server) as client:
            asking = [asyncio.create_task(ask(client)) for _ in range(CLIENTS)]
            while outcomes["200"] < 5 * CLIENTS:
                await asyncio.sleep(0)
            server.process.terminate()
            await asyncio.gather(*asking)
        return outcomes

    with running(classification.path, DEMUR_DRAIN_SECONDS="3") as server:
        outcomes = asyncio.run(test(server))
        assert server.process.wait(TIMEOUT) == 0
        server.wait_for_end_of_log()
        logged = Counter(match["status"] for line in server.lines if (match := re.search(ACCESS, line)))
    # While draining every response closes its connection, so no client reuses one that is about to end. A connection
    # that is reset was in the kernel's queue when the socket was closed.
    assert set(outcomes) <= {"200", "not connected", "ReadError"}
    assert outcomes["200"] == logged["200"]
    assert set(logged) == {"200"}
    assert outcomes["not connected"] + outcomes["ReadError"] == CLIENTS


def test_clients_that_vanish_leave_nothing_behind(classification: Synthetic) -> None:
    head = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    body = json.dumps({"inputs": [GOOD] * 512}).encode()
    with running(classification.path) as server:
        for i in range(40):
            with contextlib.closing(server.socket()) as connection:
                sent = (head + f"{len(body)}\r\n\r\n").encode() + body
                connection.sendall(sent[: len(sent) - (i % 3) * 100])
        for text in metrics_until(server, "demur_http_requests_in_flight", 1):
            assert "demur_http_requests_in_flight" in text
        assert server.request("POST", "/predict", json.dumps(BODY).encode())[0] == 200
        assert not [line for line in server.lines if "Traceback" in line or "ERROR" in line]


def metrics_until(server: Server, name: str, expected: float) -> Iterator[str]:
    for _ in range(10_000):
        text = server.request("GET", "/metrics")[2].decode()
        yield text
        if metric(text, name) == expected:
            return
    pytest.fail(f"{name} never became {expected}")


def test_several_models_side_by_side(tmp_path: Path, classification: Synthetic, regression: Synthetic) -> None:
    models = tmp_path / "models"
    for name, version in (("a", "1"), ("a", "2"), ("b", "1")):
        write_linear(models / f"{name}-{version}", outputs=3, spec=FEATURE_SPEC, name=name, version=version)
    shutil.copytree(classification.path, models / "broken")
    (models / "broken" / "model.onnx").unlink()
    with running(regression.path, DEMUR_MODELS=str(models)) as server:

        def ask(path: str, inputs: Any = GOOD) -> tuple[int, Any]:
            status, _, answer = server.request("POST", path, json.dumps({"inputs": inputs}).encode())
            return status, json.loads(answer)

        def served(path: str) -> tuple[str, str]:
            status, answer = ask(path)
            assert status == 200, answer
            return answer["model"]["name"], answer["model"]["version"]

        server.wait_until_loaded()
        assert served("/models/a/predict") == ("a", "2")
        assert served("/models/a/versions/1/predict") == ("a", "1")
        assert served("/models/b/predict") == ("b", "1")
        assert ask("/predict", [0.0] * 3)[1]["model"]["name"] == regression.manifest.name
        for path in ("/models/c/predict", "/models/a/versions/3/predict"):
            assert ask(path)[1]["code"] == "model_not_found"
        listed = json.loads(server.request("GET", "/models")[2])["models"]
        assert {(one["name"], one["version"], one["default"]) for one in listed} == {
            ("a", "1", False),
            ("a", "2", False),
            ("b", "1", False),
            (regression.manifest.name, "1", True),
        }
        assert json.loads(server.request("GET", "/models/a/versions/1")[2])["version"] == "1"
        server.wait_for("broken.*not loaded, nothing is served")
        assert metric(server.request("GET", "/metrics")[2].decode(), "demur_model_stale", model="broken") == 1
