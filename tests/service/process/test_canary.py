"""Versions of a model that share its requests, over HTTP: by chance, and the same for the same key."""

import json
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest

from demur.service.models.versions_file import Pinned, write_versions
from demur.service.rpc.protocol import SERVICE, Protocol
from tests.support.model_folders import bundle
from tests.support.server import RUNNING, TIMEOUT, Server, starting

COUNT = 400
EXAMPLE = [1.0, 2.0, 3.0, 4.0]
KEY = "X-Route-Key"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Version 9 of a model answers, and version 10 a quarter of the requests."""
    folder = tmp_path_factory.mktemp("models")
    for version in ("9", "10"):
        bundle(folder / "a" / version, "a", version)
    write_versions(folder, {"a": Pinned("9", {"10": 0.25})})
    with starting("--models", str(folder), DEMUR_GRPC_PORT="0") as server:
        server.port = int(server.wait_for(RUNNING)[1])
        server.wait_until_loaded()
        yield server


def answered(server: Server, path: str, **headers: str) -> str:
    tensor = {"name": "inputs", "shape": [1, 4], "datatype": "FP32", "data": EXAMPLE}
    body = {"inputs": [tensor if path.startswith("/v2") else EXAMPLE]}
    sent = {"Content-Type": "application/json", **headers}
    status, _, answer = server.request("POST", path, json.dumps(body).encode(), sent)
    assert status == 200, answer
    found = json.loads(answer)
    return str(found["model_version"] if "model_version" in found else found["model"]["version"])


@pytest.mark.parametrize("path", ["/predict", "/models/a/predict", "/v2/models/a/infer"])
def test_a_share_of_the_requests_goes_to_the_canary(server: Server, path: str) -> None:
    found = Counter(answered(server, path) for _ in range(COUNT))
    assert found.keys() == {"9", "10"}
    assert pytest.approx(found["10"], abs=6 * (0.25 * 0.75 * COUNT) ** 0.5) == 0.25 * COUNT  # six standard deviations


def test_the_same_key_gets_the_same_version_on_every_path(server: Server) -> None:
    versions = {}
    for number in range(60):
        key = {KEY: f"user-{number}"}
        found = {answered(server, path, **key) for path in ("/predict", "/v2/models/a/infer", "/predict")}
        assert len(found) == 1
        versions[number] = found.pop()
    assert set(versions.values()) == {"9", "10"}


def test_the_key_of_a_call_over_grpc_is_the_same(server: Server) -> None:
    port, protocol = server.wait_for(r"gRPC running on 127.0.0.1:([0-9]+)")[1], Protocol()
    request = protocol["ModelInferRequest"](
        model_name="a",
        inputs=[{"name": "inputs", "datatype": "FP32", "shape": [1, 4], "contents": {"fp32_contents": EXAMPLE}}],
    )
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary(f"/{SERVICE}/ModelInfer", None, protocol["ModelInferResponse"].FromString)
        for number in range(20):
            metadata = [(KEY.lower(), f"user-{number}")]
            found = ask(request.SerializeToString(), timeout=TIMEOUT, metadata=metadata).model_version
            assert found == answered(server, "/predict", **{KEY: f"user-{number}"})


def test_a_client_that_names_a_version_gets_it(server: Server) -> None:
    for version in ("9", "10"):
        assert {answered(server, f"/models/a/versions/{version}/predict") for _ in range(20)} == {version}
