"""Valid requests: the whole response, number by number, and the other endpoints."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from pydantic import BaseModel

from demur.service.app import create_app
from demur.service.bundle import SEAL, read_bundle
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from demur.service.maths.outcomes import RegressionOutcomes
from demur.service.models.repository import Repository
from demur.service.routes.predict import ERRORS
from demur.service.runtime import Runtime
from demur.service.schemas import (
    ClassificationPrediction,
    Health,
    Interval,
    ModelName,
    PredictResponse,
    RegressionPrediction,
    Timing,
    Uncertainty,
)
from demur.service.settings import Settings
from tests.support.bundles import FEATURE_SPEC, Synthetic, slow_threshold, write_linear
from tests.support.client import Client, base64_text, encoded, problem, serving
from tests.support.tamper import load_json

Array = npt.NDArray[Any]
Json = dict[str, Any]
LEVEL = 0.9
FULL = "?detail=full"
CLOSE: dict[str, Any] = {"rel": 1e-3, "abs": 1e-5}


@pytest.fixture(scope="module", params=["regression", "single_regression"])
def regressor(request: pytest.FixtureRequest) -> Iterator[tuple[Synthetic, Client]]:
    synthetic: Synthetic = request.getfixturevalue(request.param)
    policy = Policy(interval_level=LEVEL)
    with serving(Predictor.load(synthetic.path, policy=policy)) as started:
        yield synthetic, started


def draw(synthetic: Synthetic, rows: int) -> Array:
    shape = (rows, *synthetic.manifest.input.shape)
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def assert_fields(data: Json, model: type[BaseModel]) -> None:
    """Check for exactly the fields of the schema; without a secret for feedback, there is no receipt."""
    assert set(data) == set(model.model_fields) - {"receipt"}
    model.model_validate(data)


def answer_of(response: Any, synthetic: Synthetic) -> list[Json]:
    """Check a response, and return its predictions."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    data: Json = response.json()
    assert_fields(data, PredictResponse)
    assert_fields(data["model"], ModelName)
    assert_fields(data["timing"], Timing)
    assert all(seconds >= 0 for seconds in data["timing"].values())
    assert data["model"]["name"] == synthetic.manifest.name
    assert data["model"]["version"] == synthetic.manifest.version
    assert re.fullmatch("[0-9a-f]{64}", data["model"]["digest"])
    predictions: list[Json] = data["predictions"]
    return predictions


def check_decision(found: Json, score: float, synthetic: Synthetic) -> None:
    threshold = slow_threshold(synthetic.scores, synthetic.alpha)
    assert found["score"] == pytest.approx(score, **CLOSE)
    p_value = (1 + sum(other >= found["score"] for other in synthetic.scores)) / (len(synthetic.scores) + 1)
    assert found["p_value"] == pytest.approx(p_value, rel=1e-5)
    assert found["threshold"] == pytest.approx(threshold, rel=1e-5)
    assert found["false_reject_rate"] == synthetic.alpha
    assert found["rejected"] is (found["score"] > threshold)
    assert found["rejected"] is bool(p_value <= synthetic.alpha)
    if found["rejected"]:
        below, every = sum(other < found["score"] for other in synthetic.scores), len(synthetic.scores)
        unusual = f"higher than that of {below:,} of {every:,} held-out inputs (accepted up to {threshold:.4g})."
        assert f" is {unusual}" in found["reason"]
    else:
        assert found["reason"] is None


def softmax(scaled: Array) -> Array:
    exponentials = np.exp(scaled - scaled.max())
    shares: Array = exponentials / exponentials.sum()
    return shares


def entropy(probabilities: Array) -> float:
    return -sum(p * math.log(p) for p in probabilities.tolist() if p > 0)


def check_classification(found: Json, mean: Array, variance: Array, synthetic: Synthetic) -> None:
    assert_fields(found, ClassificationPrediction)
    assert_fields(found["uncertainty"], Uncertainty)
    names = list(synthetic.manifest.class_names or ())
    probabilities = softmax(mean / np.sqrt(1 + math.pi / 8 * variance))
    plain = softmax(mean)
    assert list(found["probabilities"]) == list(found["map_probabilities"]) == names
    assert list(found["probabilities"].values()) == pytest.approx(probabilities, **CLOSE)
    assert list(found["map_probabilities"].values()) == pytest.approx(plain, **CLOSE)
    assert found["label"] == names[int(probabilities.argmax())]
    assert found["map_label"] == names[int(plain.argmax())]
    assert found["probability"] == max(found["probabilities"].values()) == found["probabilities"][found["label"]]
    assert list(found["logit_mean"].values()) == pytest.approx(mean, **CLOSE)
    assert list(found["logit_variance"].values()) == pytest.approx(variance, **CLOSE)
    assert found["variance"] == pytest.approx(variance.mean(), **CLOSE)
    total, aleatoric = entropy(probabilities), min(entropy(plain), entropy(probabilities))
    expected = {"total": total, "aleatoric": aleatoric, "epistemic": total - aleatoric}
    assert found["uncertainty"] == pytest.approx(expected, **CLOSE)
    check_decision(found, total, synthetic)


def test_a_classification(client: Client, classification: Synthetic) -> None:
    inputs = draw(classification, 60)
    found = answer_of(client.predict({"inputs": inputs.tolist()}, FULL), classification)
    mean, variance = classification.mean(inputs), classification.variance(inputs)
    assert len(found) == len(inputs)
    for i, one in enumerate(found):
        check_classification(one, mean[i], variance[i], classification)
    assert {one["rejected"] for one in found} == {True, False}


def test_a_regression(regressor: tuple[Synthetic, Client]) -> None:
    synthetic, client = regressor
    inputs = draw(synthetic, 60)
    found = answer_of(client.predict({"inputs": inputs.tolist()}, FULL), synthetic)
    mean, variance = synthetic.mean(inputs), synthetic.variance(inputs)
    assert isinstance(synthetic.manifest.sigma_noise, float)
    sigma, outcomes = synthetic.manifest.sigma_noise, read_bundle(synthetic.path).calibration.outcomes
    assert isinstance(outcomes, RegressionOutcomes)
    q = np.sort(outcomes.residuals, axis=0)[math.ceil((len(outcomes.residuals) + 1) * LEVEL) - 1]
    for i, one in enumerate(found):
        assert_fields(one, RegressionPrediction)
        assert_fields(one["interval"], Interval)
        std = np.sqrt(variance[i] + sigma**2)
        assert one["mean"] == pytest.approx(mean[i], **CLOSE)
        assert one["variance"] == pytest.approx(variance[i], **CLOSE)
        assert one["noise_std"] == pytest.approx([sigma] * synthetic.manifest.outputs, rel=1e-5)
        assert one["std"] == pytest.approx(std, **CLOSE)
        assert one["interval"]["level"] == LEVEL
        assert one["interval"]["low"] == pytest.approx(mean[i] - q * std, **CLOSE)
        assert one["interval"]["high"] == pytest.approx(mean[i] + q * std, **CLOSE)
        check_decision(one, math.sqrt(variance[i].mean()), synthetic)
    assert {one["rejected"] for one in found} == {True, False}


def test_images(image_client: Client, images: Synthetic) -> None:
    levels = np.random.default_rng(1).integers(0, 256, (6, 4, 5)).astype(np.uint8)
    inputs = (levels[:, None] / 255 - 0.5) / 0.25
    texts = [base64_text(encoded(Image.fromarray(one))) for one in levels]
    found = answer_of(image_client.predict({"images": texts}, FULL), images)
    mean, variance = images.mean(inputs), images.variance(inputs)
    for i, one in enumerate(found):
        check_classification(one, mean[i], variance[i], images)
    as_numbers = answer_of(image_client.predict({"inputs": inputs.tolist()}, FULL), images)
    assert [one["label"] for one in as_numbers] == [one["label"] for one in found]
    assert as_numbers[0]["logit_mean"] == pytest.approx(found[0]["logit_mean"], **CLOSE)


def test_one_example_needs_no_batch(client: Client, image_client: Client, classification: Synthetic) -> None:
    example = draw(classification, 1)
    batch, single = (client.predict({"inputs": body}).json() for body in (example.tolist(), example[0].tolist()))
    assert single["predictions"] == batch["predictions"]
    assert len(image_client.predict({"inputs": [[[0.0] * 5] * 4]}).json()["predictions"]) == 1


def test_classes_without_names_are_numbered(tmp_path: Path) -> None:
    nameless = write_linear(tmp_path / "nameless", outputs=3, spec=FEATURE_SPEC, class_names=None)
    with serving(Predictor.load(nameless.path)) as client:
        one = client.predict({"inputs": [0.0] * 4}).json()["predictions"][0]
        assert list(one["probabilities"]) == ["0", "1", "2"]


def test_names_beyond_ascii_come_out_as_they_are(tmp_path: Path) -> None:
    names = ("où", '"\\\n', "🦆")
    odd = write_linear(tmp_path / "odd", outputs=3, spec=FEATURE_SPEC, class_names=names, name='模型 "1"\n')
    with serving(Predictor.load(odd.path)) as client:
        answer = client.predict({"inputs": [0.0] * 4}).json()
        assert answer["model"]["name"] == '模型 "1"\n'
        assert tuple(answer["predictions"][0]["probabilities"]) == names
        assert client.get("/model").json()["class_names"] == list(names)
        assert client.get("/metrics").status_code == 200


def test_the_model_card(client: Client, classification: Synthetic) -> None:
    response = client.get("/model")
    assert response.status_code == 200
    card = response.json()
    assert card.pop("digest") == client.predict({"inputs": [0.0] * 4}).json()["model"]["digest"]
    manifest = load_json(classification.path)
    calibration = manifest["calibration"]
    decision = {name: calibration[name] for name in ("false_reject_rate", "threshold")}
    assert card.pop("decision") == decision
    assert card == {name: value for name, value in manifest.items() if name != SEAL}


def test_health(client: Client) -> None:
    for path, status in [("/health/live", "live"), ("/health/ready", "ready")]:
        response = client.get(path)
        assert (response.status_code, response.json()) == (200, {"status": status})
        Health.model_validate(response.json())
        for prefix in ("", "/v2"):
            assert client.request("HEAD", prefix + path).status_code == 200


def test_a_service_that_drains_is_live_and_not_ready(classification: Synthetic) -> None:
    with serving(Predictor.load(classification.path)) as client:
        runtime: Runtime = client.app.state.runtime
        runtime.draining = True
        problem(client.get("/health/ready"), 503, "draining")
        assert client.get("/health/live").status_code == 200


def test_the_interactive_documentation(client: Client) -> None:
    response = client.get("/docs")
    assert response.status_code == 200
    assert "/openapi.json" in response.text


def resolve(document: Json, node: Json) -> Json:
    while "$ref" in node:
        target: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for item in node.values():
            yield from references(item)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def test_the_openapi_document(client: Client) -> None:
    document: Json = client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    assert set(document["paths"]) >= {"/predict", "/model", "/metrics", "/health/live", "/health/ready"}
    for reference in references(document):
        assert resolve(document, {"$ref": reference})
    operation = document["paths"]["/predict"]["post"]
    body = operation["requestBody"]
    assert body["required"] is True
    request = resolve(document, body["content"]["application/json"]["schema"])
    assert set(request["properties"]) == {"inputs", "images", "texts"}
    assert all(part["description"] for part in request["properties"].values())
    answer = resolve(document, operation["responses"]["200"]["content"]["application/json"]["schema"])
    assert set(answer["properties"]) == set(PredictResponse.model_fields)
    assert set(operation["responses"]) == {"200", *(str(status) for status in ERRORS)}
    for status in ("400", "413", "415", "422"):
        content = operation["responses"][status]["content"]
        assert set(content) == {"application/problem+json"}
        assert {"title", "status", "detail", "code"} <= set(
            resolve(document, content["application/problem+json"]["schema"])["properties"]
        )


def test_the_openapi_document_names_what_a_prediction_takes_and_answers(client: Client) -> None:
    document: Json = client.get("/openapi.json").json()
    found = {path: item["post"] for path, item in document["paths"].items() if path.endswith(("/predict", "/infer"))}
    assert len(found) >= 5
    for operation in found.values():
        named = {one["name"] for one in operation["parameters"] if one["in"] == "header"}
        assert named >= {"X-Request-ID", "X-Route-Key"}
    request = found["/v2/models/{name}/infer"]["requestBody"]["content"]["application/json"]["schema"]
    assert "maxItems" not in request["properties"]["inputs"]  # a model may have several
    datatypes = document["components"]["schemas"]["OutputTensor"]["properties"]["datatype"]["enum"]
    assert set(datatypes) == {"FP32", "FP64", "BOOL"}


def test_the_openapi_document_is_rendered_once(classification: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Predictor.load(classification.path)) as client:
        rendered = client.get("/openapi.json")
        monkeypatch.setattr(client.app, "openapi", pytest.fail)
        assert client.get("/openapi.json").content == rendered.content
        assert rendered.headers["content-type"] == "application/json"
        assert client.request("HEAD", "/openapi.json").status_code == 200


def test_two_services_in_one_process_share_nothing(classification: Synthetic, regression: Synthetic) -> None:
    with serving(Predictor.load(classification.path)) as one, serving(Predictor.load(regression.path)) as other:
        assert one.get("/model").json()["task"] == "classification"
        assert other.get("/model").json()["task"] == "regression"
        assert one.app.state.runtime.metrics.registry is not other.app.state.runtime.metrics.registry
    assert create_app(Predictor.load(classification.path), Settings()).title == "Demur"


def test_a_bug_in_loading_the_bundles_of_the_start_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Repository, "_renew_in_order", fail)
    with serving([], Settings(models=tmp_path)) as client:
        while (found := client.get("/health/ready").json())["code"] == "loading":
            pass
    assert found["code"] == "not_ready"
    assert "loading its bundles failed" in caplog.text
    assert "a bug" in caplog.text
