"""/v2 of the application: what each path answers."""

import gzip
import json
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from probity.service.inference.predictor import Predictor
from probity.service.oip.request import parse_request
from probity.service.oip.schemas_models import IndexEntry, ModelConfig, ModelMetadata, ModelStatistics, ServerMetadata
from probity.service.routes import decode as decode_route
from probity.service.routes import v2_infer
from probity.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, base64_text, serving
from tests.support.requests import image_file
from tests.support.tamper import copy_bundle
from tests.support.v2 import GOOD, INFER, LENGTH, MODEL, ROWS, VALUES, binary, checked, outputs, post, refused


@pytest.fixture
def allowing(classification: Synthetic, tmp_path: Path) -> Iterator[Client]:
    path = copy_bundle(classification.path, tmp_path / "bundle")
    with serving(Predictor.load(path), Settings(repository_api=True)) as started:
        yield started


def test_the_service(client: Client, allowing: Client) -> None:
    data = checked(client.get("/v2"), ServerMetadata)
    assert data == {"name": "probity", "version": client.app.version, "extensions": ["binary_tensor_data"]}
    assert "model_repository" in checked(allowing.get("/v2"), ServerMetadata)["extensions"]


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", f"{MODEL}/ready", f"{MODEL}/versions/1/ready"])
def test_health_is_an_empty_answer(client: Client, path: str) -> None:
    response = client.get(path)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize("path", ["/v2/health/ready", f"{MODEL}/ready"])
def test_draining_is_not_ready(classification: Synthetic, path: str) -> None:
    with serving(Predictor.load(classification.path)) as client:
        client.app.state.runtime.draining = True
        refused(client.get(path), 503, "shutting down")
        assert client.get("/v2/health/live").status_code == 200


@pytest.mark.parametrize("base", [MODEL, f"{MODEL}/versions/1"])
def test_metadata_and_configuration(client: Client, base: str) -> None:
    data = checked(client.get(base), ModelMetadata)
    assert (data["name"], data["versions"]) == ("synthetic", ["1"])
    assert data["inputs"] == [{"name": "inputs", "datatype": "FP32", "shape": [-1, 4]}]
    shapes = {output["name"]: (output["datatype"], output["shape"]) for output in data["outputs"]}
    assert shapes["probabilities"] == ("FP32", [-1, 3])
    assert shapes["rejected"] == ("BOOL", [-1])
    found = checked(client.get(f"{base}/config"), ModelConfig)
    assert found["max_batch_size"] == 1024
    assert found["input"] == [{"name": "inputs", "data_type": "TYPE_FP32", "dims": [4]}]
    assert [output["name"] for output in found["output"]] == list(shapes)
    assert shapes["prediction_set"] == ("BOOL", [-1, 3])
    assert data["parameters"].keys() == {"digest", "task", "interval_level"}


def test_tokens_are_int64(token_client: Client) -> None:
    name = token_client.get("/model").json()["name"]
    data = checked(token_client.get(f"/v2/models/{name}"), ModelMetadata)
    assert data["inputs"] == [{"name": "inputs", "datatype": "INT64", "shape": [-1, 2]}]
    tensor = {"name": "inputs", "shape": [1, 2], "datatype": "UINT8", "data": [0, 1]}
    assert post(token_client, {"inputs": [tensor]}, f"/v2/models/{name}/infer").status_code == 200
    refused(post(token_client, {"inputs": [{**tensor, "data": [0, 9]}]}, f"/v2/models/{name}/infer"), 422)
    floats = {**tensor, "datatype": "FP32"}
    refused(post(token_client, {"inputs": [floats]}, f"/v2/models/{name}/infer"), 422, "whole numbers")


def test_the_answer_is_the_native_one(client: Client) -> None:
    native = client.predict({"inputs": ROWS}).json()["predictions"]
    found = outputs(post(client, GOOD))
    for i, one in enumerate(native):
        for name in ("probabilities", "map_probabilities"):
            expected = np.array(list(one[name].values()), np.float32)
            np.testing.assert_array_equal(np.float32(found[name]["data"][3 * i : 3 * i + 3]), expected)
        for name in ("score", "p_value"):
            assert np.float32(found[name]["data"][i]) == np.float32(one["ood"][name])
        assert found["rejected"]["data"][i] is one["ood"]["rejected"]
        assert found["variance"]["data"][3 * i : 3 * i + 3] == one["logit_variance"]


@pytest.mark.parametrize("content_type", [None, "application/json", "application/octet-stream"])
def test_media_types(client: Client, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content_type": content_type}
    assert post(client, GOOD, **headers).status_code == 200


def test_binary_both_ways(client: Client) -> None:
    body, headers = binary(id="a", parameters={"binary_data_output": True}, outputs=[{"name": "mean"}])
    response = client.request("POST", f"{MODEL}/versions/1/infer", content=body, headers=headers)
    assert response.headers["content-type"] == "application/octet-stream"
    length = int(response.headers[LENGTH])
    head = json.loads(response.content[:length])
    assert (head["id"], head["parameters"]) == ("a", {"degraded": False})
    found = np.frombuffer(response.content[length:], "<f4")
    np.testing.assert_array_equal(found, np.float32(outputs(post(client, GOOD))["mean"]["data"]))


@pytest.mark.parametrize(("name", "inverse"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)])
def test_answers_are_compressed_where_one_coding_is_named(client: Client, name: str, inverse: Any) -> None:
    body, headers = binary(outputs=[{"name": "mean", "parameters": {"binary_data": True}}])
    plain = client.request("POST", INFER, content=body, headers={**headers, "Accept-Encoding": "gzip, deflate"})
    assert "content-encoding" not in plain.headers

    async def raw() -> tuple[httpx.Headers, bytes]:
        async with client.http.stream(
            "POST", INFER, content=body, headers={**headers, "Accept-Encoding": name}
        ) as response:
            return response.headers, b"".join([part async for part in response.aiter_raw()])

    found, compressed = client.portal.call(raw)
    assert (found["content-encoding"], found["vary"]) == (name, "Accept-Encoding")
    assert found[LENGTH] == plain.headers[LENGTH]
    assert inverse(compressed) == plain.content


def test_only_large_requests_leave_the_event_loop(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noting(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return parse_request(*arguments)

    monkeypatch.setattr(v2_infer, "parse_request", noting)
    monkeypatch.setattr(decode_route, "INLINE_BYTES", 400)
    loop_thread = client.portal.call(threading.get_ident)
    values = np.tile(VALUES, (250, 1))
    tensor = {"name": "inputs", "shape": [500, 4], "datatype": "FP32", "data": values.tolist()}
    for body, headers in (binary(), binary(values), (json.dumps({"inputs": [tensor]}).encode(), {})):
        response = client.request("POST", INFER, content=body, headers=headers)
        assert outputs(response)["score"]["shape"] == [2 if len(threads) == 1 else 500]
    assert [thread == loop_thread for thread in threads] == [True, False, False]


def test_only_small_images_are_decoded_in_the_service_s_own_process(
    image_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    pool = image_client.app.state.runtime.decoders
    decode = pool.array

    def noting(*arguments: Any) -> Any:
        asked.append(arguments)
        return decode(*arguments)

    monkeypatch.setattr(pool, "array", noting)
    tensor = {"name": "inputs", "shape": [1], "datatype": "BYTES", "data": [base64_text(image_file())]}
    found = []
    for pixels, by_a_process in ((64 * 64, 0), (1, 1)):  # tried, and left to a process
        monkeypatch.setattr(decode_route, "CHEAP_PIXELS", pixels)
        found.append(outputs(post(image_client, {"inputs": [tensor]}))["mean"])
        assert len(asked) == by_a_process
    assert found[0] == found[1]


def test_images(image_client: Client) -> None:
    tensor = {"name": "inputs", "shape": [1], "datatype": "BYTES", "data": [base64_text(image_file())]}
    native = image_client.predict({"images": [base64_text(image_file())]}).json()["predictions"][0]
    found = outputs(post(image_client, {"inputs": [tensor]}))
    assert found["mean"]["data"] == native["logit_mean"]
    bad = {**tensor, "data": [base64_text(b"x")]}
    refused(post(image_client, {"inputs": [bad]}), 422, "inputs[0]", "not an image")


def test_statistics_count_what_was_computed(classification: Synthetic) -> None:
    with serving(Predictor.load(classification.path)) as client:
        for _ in range(3):
            assert post(client, GOOD).status_code == 200
        for path in (f"{MODEL}/stats", f"{MODEL}/versions/1/stats", "/v2/models/stats"):
            (one,) = checked(client.get(path), ModelStatistics)["model_stats"]
            assert (one["name"], one["version"]) == ("synthetic", "1")
            assert (one["inference_count"], one["execution_count"]) == (6, 3)
            assert one["inference_stats"]["success"] == {"count": 3}
            assert one["inference_stats"]["compute_infer"]["count"] == 3
            assert one["inference_stats"]["compute_infer"]["ns"] > 0


class TestRepository:
    """Listing is always allowed, changing only where the operator says so."""

    @pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": true}', b'{"ready": false}'])
    def test_index(self, client: Client, body: bytes) -> None:
        response = post(client, body, "/v2/repository/index", content_type="text/plain")
        (entry,) = response.json()
        assert IndexEntry.model_validate(entry) == IndexEntry(name="synthetic", version="1", state="READY", reason="")

    def test_a_wrong_index(self, client: Client) -> None:
        refused(post(client, b"x", "/v2/repository/index"), 400)
        refused(post(client, b'{"ready": 1}', "/v2/repository/index"), 422, "ready")
        refused(post(client, b"[]", "/v2/repository/index"), 422)

    @pytest.mark.parametrize("what", ["load", "unload"])
    def test_changes_are_forbidden_by_default(self, client: Client, allowing: Client, what: str) -> None:
        refused(post(client, b"", f"/v2/repository/models/synthetic/{what}"), 403, "PROBITY_REPOSITORY_API")
        path, page = f"/v2/repository/models/synthetic/{what}", {"Origin": "https://evil.example"}
        refused(allowing.request("POST", path, content=b"", headers=page), 403, "https://evil.example")
        assert post(client, GOOD).status_code == 200

    def test_unload_and_load(self, allowing: Client) -> None:
        def change(what: str, body: bytes = b"{}", name: str = "synthetic") -> httpx.Response:
            return post(allowing, body, f"/v2/repository/models/{name}/{what}")

        assert change("unload", b'{"parameters": {"unload_dependents": false}}').status_code == 200
        refused(post(allowing, GOOD), 404)
        refused(allowing.get(f"{MODEL}/ready"), 404)
        assert post(allowing, b'{"ready": true}', "/v2/repository/index").json() == []
        assert post(allowing, b"", "/v2/repository/index").json()[0]["state"] == "UNAVAILABLE"
        assert change("load").status_code == 200
        assert post(allowing, GOOD).status_code == 200
        refused(change("load", name="no"), 404, "synthetic")
        refused(change("load", b'{"parameters": {"config": "{}"}}'), 422, "config")
        refused(change("load", b'{"parameters": {"file:1/model.onnx": "AAAA"}}'), 422, "file:1/model.onnx")

    def test_a_bad_bundle_leaves_the_old_one_serving(self, allowing: Client) -> None:
        path: Path = allowing.app.state.runtime.store.find().predictor.path
        (path / "manifest.json").write_text("{}")
        message = refused(post(allowing, b"", "/v2/repository/models/synthetic/load"), 400, "manifest.json")
        (listed,) = post(allowing, b"", "/v2/repository/index").json()
        assert listed["reason"]
        assert listed["reason"] in message
        assert str(path.parent) not in message  # where bundles are is nobody's business
        assert post(allowing, GOOD).status_code == 200


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


def test_the_openapi_document_is_whole(client: Client) -> None:
    document = client.get("/openapi.json").json()
    paths = {path: found for path, found in document["paths"].items() if path.startswith("/v2")}
    for reference in references(paths):
        name = reference.removeprefix("#/components/schemas/")
        assert name in document["components"]["schemas"]
        assert name != "HTTPValidationError"
    for path, found in paths.items():
        for operation in found.values():
            named = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
            assert named == {part.strip("{}") for part in path.split("/") if part.startswith("{")}
            assert "default" in operation["responses"]
    infer = paths["/v2/models/{name}/infer"]["post"]
    assert set(infer["requestBody"]["content"]) == {"application/json", "application/octet-stream"}
    assert {"400", "401", "404", "413", "415", "422", "429", "500", "503", "504"} <= set(infer["responses"])
