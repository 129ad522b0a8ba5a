"""/v2 of the application: what each path answers."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from demur.service import decoding as decode_route
from demur.service.inference.predictor import Predictor
from demur.service.oip.request import parse_request
from demur.service.oip.schemas import ModelMetadata, ServerMetadata
from demur.service.routes import v2_infer
from tests.support.bundles import Synthetic
from tests.support.client import Client, base64_text, serving
from tests.support.requests import image_file
from tests.support.v2 import GOOD, INFER, LENGTH, MODEL, ROWS, VALUES, binary, checked, outputs, post, refused


def test_the_service(client: Client) -> None:
    data = checked(client.get("/v2"), ServerMetadata)
    assert data == {"name": "demur", "version": client.app.version, "extensions": ["binary_tensor_data"]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        (f"{MODEL}/ready", {"name": "synthetic", "ready": True}),
        (f"{MODEL}/versions/1/ready", {"name": "synthetic", "ready": True}),
    ],
)
def test_health(client: Client, path: str, expected: dict[str, Any]) -> None:
    response = client.get(path)
    assert (response.status_code, response.json()) == (200, expected)
    response = client.request("HEAD", path)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize("path", ["/v2/health/ready", f"{MODEL}/ready"])
def test_draining_is_not_ready(classification: Synthetic, path: str) -> None:
    with serving(Predictor.load(classification.path)) as client:
        client.app.state.runtime.draining = True
        refused(client.get(path), 503, "shutting down")
        assert client.get("/v2/health/live").status_code == 200


@pytest.mark.parametrize("base", [MODEL, f"{MODEL}/versions/1"])
def test_metadata(client: Client, base: str) -> None:
    data = checked(client.get(base), ModelMetadata)
    assert (data["name"], data["versions"]) == ("synthetic", ["1"])
    assert data["inputs"] == [{"name": "inputs", "datatype": "FP32", "shape": [-1, 4]}]
    shapes = {output["name"]: (output["datatype"], output["shape"]) for output in data["outputs"]}
    assert shapes["probabilities"] == ("FP32", [-1, 3])
    assert shapes["rejected"] == ("BOOL", [-1])
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
    native = client.predict({"inputs": ROWS}, "?detail=full").json()["predictions"]
    found = outputs(post(client, GOOD))
    for i, one in enumerate(native):
        for name in ("probabilities", "map_probabilities"):
            assert found[name]["data"][3 * i : 3 * i + 3] == pytest.approx(list(one[name].values()), rel=1e-5)
        for name in ("score", "p_value"):
            assert found[name]["data"][i] == pytest.approx(one[name], rel=1e-5)
        assert found["rejected"]["data"][i] is one["rejected"]
        assert found["variance"]["data"][3 * i : 3 * i + 3] == pytest.approx(
            list(one["logit_variance"].values()), rel=1e-5
        )


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
    assert head["id"] == "a"
    found = np.frombuffer(response.content[length:], "<f4")
    np.testing.assert_array_equal(found, np.float32(outputs(post(client, GOOD))["mean"]["data"]))


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
    pool = image_client.app.state.runtime.decoding.images
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
    native = image_client.predict({"images": [base64_text(image_file())]}, "?fields=logit_mean")
    mean = list(native.json()["predictions"][0]["logit_mean"].values())
    found = outputs(post(image_client, {"inputs": [tensor]}))
    assert found["mean"]["data"] == pytest.approx(mean, rel=1e-5)
    bad = {**tensor, "data": [base64_text(b"x")]}
    refused(post(image_client, {"inputs": [bad]}), 422, "inputs[0]", "not an image")


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
