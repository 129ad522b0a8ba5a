"""What /metrics says after known requests, and that no client can add series to it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import demur.service
from demur.service.http.errors import ANSWERS, HTTP_CODES, UNFORESEEN
from demur.service.inference.predictor import Prediction, Predictor
from demur.service.monitoring.metrics import ERROR_REASONS
from tests.support.bundles import Synthetic
from tests.support.client import Client, serving

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def fresh(classification: Synthetic) -> Iterator[Client]:
    with serving(Predictor.load(classification.path)) as started:
        yield started


def scrape(client: Client) -> Samples:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(response.text)
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def value(samples: Samples, name: str, /, **labels: str) -> float:
    """One sample; 0 where there is none, as in a Prometheus query over an absent counter."""
    return samples.get((name, frozenset(labels.items())), 0.0)


def draw(synthetic: Synthetic, rows: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(7).normal(size=(rows, *synthetic.manifest.input.shape)).astype(np.float32)


def test_requests_and_errors_are_counted(fresh: Client) -> None:
    for body in ({"inputs": [0.0] * 4}, {"inputs": [[0.0] * 4] * 3}, {"inputs": [1]}, b"{", {"other": 1}):
        fresh.predict(body)
    fresh.predict({"inputs": [1e38] * 4})
    fresh.request("POST", "/predict", content=b"", headers={"content-type": "text/plain"})
    fresh.get("/predict")
    fresh.get("/health/live")
    fresh.get("/nothing")
    samples = scrape(fresh)

    def requests(method: str, route: str, status: str) -> float:
        return value(samples, "demur_http_requests_total", method=method, route=route, status=status)

    assert requests("POST", "/predict", "200") == 2
    assert requests("POST", "/predict", "400") == 1
    assert requests("POST", "/predict", "415") == 1
    assert requests("POST", "/predict", "422") == 3
    assert requests("GET", "/predict", "405") == 1
    assert requests("GET", "/health/live", "200") == 1
    assert requests("GET", "unmatched", "404") == 1
    assert value(samples, "demur_http_request_duration_seconds_count", route="/predict") == 8
    assert value(samples, "demur_http_requests_in_flight") == 1  # the scrape itself
    for reason in ("input", "json", "field", "non_finite_output", "media_type", "not_found", "method_not_allowed"):
        assert value(samples, "demur_errors_total", reason=reason) == 1, reason
    assert value(scrape(fresh), "demur_http_requests_total", method="GET", route="/metrics", status="200") == 1


def test_series_of_the_model_start_at_zero(fresh: Client, classification: Synthetic) -> None:
    samples = scrape(fresh)
    digest = fresh.get("/model").json()["digest"]
    model = classification.manifest.name
    assert value(samples, "demur_model_info", name=model, version="1", digest=digest) == 1
    assert value(samples, "demur_false_reject_rate", model=model, version="1") == classification.alpha
    series = {key for key in samples if key[0] == "demur_predictions_total"}
    assert {dict(labels)["label"] for _, labels in series} == set(classification.manifest.class_names or ())
    assert [samples[key] for key in series] == [0] * 3
    rejections = [dict(labels) | {"value": count} for (name, labels), count in samples.items() if name == REJECTIONS]
    assert {one["label"] for one in rejections} == set(classification.manifest.class_names or ())
    assert all((one["reason"], one["value"]) == ("score", 0) for one in rejections)


WORK = "demur_compute_seconds"
REJECTIONS = "demur_rejections_total"


def test_predictions_are_counted_example_by_example(fresh: Client, classification: Synthetic) -> None:
    inputs = draw(classification, 25)
    for rows in (inputs[:20], inputs[20:]):
        assert fresh.predict({"inputs": rows.tolist()}).status_code == 200
    samples, model = scrape(fresh), classification.manifest.name
    prediction = Predictor.load(classification.path).predict(inputs)
    assert prediction.probabilities is not None
    labels = prediction.probabilities.argmax(axis=1)
    for k, name in enumerate(classification.manifest.class_names or ()):
        found = value(samples, "demur_predictions_total", model=model, version="1", label=name)
        assert found == np.count_nonzero(labels == k)
        found = value(samples, REJECTIONS, model=model, version="1", reason="score", label=name)
        assert found == np.count_nonzero(prediction.rejected[labels == k])
    assert prediction.rejected.any()
    assert value(samples, "demur_ood_p_value_bucket", model=model, version="1", le="+Inf") == 25
    for name in ("compute_seconds", "queue_seconds"):
        assert value(samples, f"demur_{name}_count", model=model, version="1") == 2
    check_values(samples, model, prediction)


def check_values(samples: Samples, model: str, prediction: Prediction) -> None:
    total = value(samples, "demur_ood_p_value_sum", model=model, version="1")
    assert total == pytest.approx(prediction.p_value.sum(), rel=1e-4)
    for (name, labels), count in samples.items():
        if name == "demur_ood_p_value_bucket" and ("model", model) in labels:
            assert count == np.count_nonzero(prediction.p_value <= float(dict(labels)["le"]))


def test_a_regression_is_counted_under_one_label(regression: Synthetic) -> None:
    with serving(Predictor.load(regression.path)) as client:
        assert client.predict({"inputs": draw(regression, 7).tolist()}).status_code == 200
        samples, model = scrape(client), regression.manifest.name
    assert value(samples, "demur_predictions_total", model=model, version="1", label="regression") == 7
    assert value(samples, "demur_ood_p_value_count", model=model, version="1") == 7


def test_a_refused_request_leaves_the_model_s_series_alone(fresh: Client, classification: Synthetic) -> None:
    before = scrape(fresh)
    fresh.predict({"inputs": [1, 2]})
    fresh.predict({"inputs": [[0.0] * 4, [1e38] * 4]})
    after = scrape(fresh)
    model, work = ("model", classification.manifest.name), WORK

    def answered(samples: Samples) -> Samples:
        return {key: samples[key] for key in samples if model in key[1] and not key[0].startswith(work)}

    assert answered(before) == answered(after)


def test_no_client_can_add_series(fresh: Client) -> None:
    def hit(i: int) -> None:
        fresh.get(f"/path-{i}")
        fresh.get(f"/predict?query={i}")
        fresh.request(f"BREW{i}", "/predict")
        fresh.request(f"BREW{i}", f"/other-{i}/")
        fresh.request("POST", "/predict", content=b"", headers={"content-type": f"application/x-{i}"})
        fresh.predict({f"field-{i}": 1})

    hit(0)
    scrape(fresh)
    before = set(scrape(fresh))
    for i in range(1, 15):
        hit(i)
    assert set(scrape(fresh)) == before


def test_a_registry_of_one_s_own(classification: Synthetic) -> None:
    registry = CollectorRegistry()
    with serving(Predictor.load(classification.path), registry=registry) as client:
        client.predict({"inputs": [0.0] * 4})
    labels: dict[str, Any] = {"method": "POST", "route": "/predict", "status": "200"}
    assert registry.get_sample_value("demur_http_requests_total", labels) == 1


def test_every_error_and_every_answer_to_a_prediction_starts_at_zero(fresh: Client) -> None:
    """A rate does not see the first error of a series that begins with it."""
    samples = scrape(fresh)
    for reason in ERROR_REASONS:
        assert samples["demur_errors_total", frozenset({("reason", reason)})] == 0
    for route in ("/predict", "/models/{name}/predict", "/v2/models/{name}/versions/{version}/infer"):
        for status in ("200", "429", "500", "503", "504"):
            labels = {("method", "POST"), ("route", route), ("status", status)}
            assert samples["demur_http_requests_total", frozenset(labels)] == 0


def test_every_reason_in_the_source_is_known() -> None:
    """So that a new one starts at zero, too."""
    root = Path(str(demur.service.__file__)).parent
    calls = [
        node
        for file in root.rglob("*.py")
        if root / "client" not in file.parents
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("make_problem", "ProblemError")
    ]
    codes = {call.args[1].value for call in calls if isinstance(call.args[1], ast.Constant)}
    codes |= {told.code for told in (*ANSWERS.values(), UNFORESEEN)}
    assert {"queue_full", "internal", "unauthorized"} < codes
    assert codes | {"http", *HTTP_CODES.values()} <= {*ERROR_REASONS}


def test_what_the_calibration_set_says_is_there(fresh: Client, classification: Synthetic) -> None:
    samples, model = scrape(fresh), {"model": classification.manifest.name, "version": "1"}
    bound = value(samples, "demur_false_reject_rate_bound", **model)
    assert bound == pytest.approx(Predictor.load(classification.path).decision.pooled.rate_bound())
    assert classification.alpha < bound < 1
