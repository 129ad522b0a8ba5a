"""The service with a cascade turned on and off: answers, metrics, trials, and what it says at the start."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from service.inference.predictor import GraphOutputs, Predictor
from service.inference.session import NetworkFailed
from service.models.loading import load_named
from service.settings import Settings, load_settings
from tests.support.bundles import Array, Synthetic
from tests.support.cascades import CascadeBundle, write_cascade
from tests.support.client import Client, problem, serving
from tests.support.metrics import metric

COUNTER = "probity_cascade_examples_total"


@pytest.fixture(scope="module")
def cascade(tmp_path_factory: pytest.TempPathFactory) -> CascadeBundle:
    return write_cascade(tmp_path_factory.mktemp("cascade") / "bundle")


def draw(rows: int) -> Array:
    return np.random.default_rng(3).normal(size=(rows, 4)).astype(np.float32)


def ask(client: Client, inputs: Array) -> list[dict[str, Any]]:
    response = client.predict({"inputs": inputs.tolist()})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["predictions"]
    return found


def opened(path: Path, **settings: Any) -> Predictor:
    (predictor,) = load_named(Settings(bundle=(str(path),), **settings))
    return predictor


def test_answers_with_the_setting_on_and_off(cascade: CascadeBundle) -> None:
    inputs = draw(30)
    with serving(opened(cascade.path, cascade=True)) as on, serving(opened(cascade.path)) as off:
        answers, full = ask(on, inputs), ask(off, inputs)
        assert answers[0].keys() == full[0].keys()
        assert answers[0]["ood"].keys() == full[0]["ood"].keys()
        np.testing.assert_allclose([one["ood"]["score"] for one in answers], cascade.score(inputs), rtol=1e-4)
        np.testing.assert_allclose([one["ood"]["score"] for one in full], cascade.stage_scores(inputs)[1], rtol=1e-4)
        assert {one["ood"]["threshold"] for one in answers} == {cascade.cascade.calibration.threshold}
        assert {one["ood"]["threshold"] for one in full} == {cascade.full.manifest.calibration.threshold}
        reasons = [one["ood"]["reason"] for one in answers if one["ood"]["rejected"]]
        assert reasons
        assert all(reason.startswith("The score of the cascade, ") for reason in reasons)


def test_examples_are_counted_by_stage(cascade: CascadeBundle) -> None:
    inputs = draw(30)
    first, _ = cascade.stage_scores(inputs)
    decided = int(np.count_nonzero((first < cascade.cascade.low) | (first > cascade.high)))
    assert 0 < decided < 30
    with serving(opened(cascade.path, cascade=True)) as client:
        assert metric(client.get("/metrics").text, COUNTER) == 0
        ask(client, inputs)
        text = client.get("/metrics").text
        assert metric(text, COUNTER, stage="first", model="synthetic") == decided
        assert metric(text, COUNTER, stage="full", model="synthetic") == 30 - decided
        assert metric(text, "probity_reject_threshold") == cascade.cascade.calibration.threshold
        assert metric(text, "probity_reference", quantity="ood_score", level="0.5") == 0.5
    with serving(opened(cascade.path)) as client:
        ask(client, inputs)
        text = client.get("/metrics").text
        assert metric(text, COUNTER) == 0
        assert metric(text, "probity_reject_threshold") == cascade.full.manifest.calibration.threshold


def test_a_full_stage_that_fails_is_an_error_as_without_a_cascade(
    cascade: CascadeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = Predictor.load(cascade.path, cascade=True)
    assert predictor.first_stage is not None

    def fails(_: Array) -> GraphOutputs:
        raise NetworkFailed(cascade.path, "broken")

    monkeypatch.setattr(predictor, "outputs", fails)
    inputs = draw(30)
    first, _ = cascade.stage_scores(inputs)
    decided = (first < cascade.cascade.low) | (first > cascade.high)
    with serving(predictor) as client:
        assert len(ask(client, inputs[decided])) == decided.sum()
        problem(client.predict({"inputs": inputs.tolist()}), 503, "network_failed")
        assert len(ask(client, inputs[decided])) == decided.sum()


def test_a_bundle_without_a_cascade_is_served_and_the_log_says_so(
    cascade: CascadeBundle, classification: Synthetic, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "probity"):
        assert opened(cascade.path, cascade=True).first_stage is not None
        assert not caplog.records
        predictor = opened(classification.path, cascade=True)
    assert predictor.first_stage is None
    assert "PROBITY_CASCADE is set and this bundle has no cascade" in caplog.text
    with serving(predictor) as client:
        assert len(ask(client, draw(3))) == 3


def test_another_false_reject_rate_is_that_of_the_cascade(cascade: CascadeBundle) -> None:
    predictor = Predictor.load(cascade.path, cascade=True, false_reject_rate=0.3)
    rejected = predictor.predict(draw(60))
    assert (rejected.p_value <= 0.3).tolist() == rejected.rejected.tolist()


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().cascade is False
    monkeypatch.setenv("PROBITY_CASCADE", "true")
    assert load_settings().cascade is True


def test_series_go_with_the_model(cascade: CascadeBundle) -> None:
    """A version that is unloaded leaves no series of its stages."""
    from service.models.metrics import ModelMetrics
    from service.monitoring.metrics import Metrics

    metrics = Metrics(CollectorRegistry())
    found = ModelMetrics(metrics, Predictor.load(cascade.path, cascade=True))
    assert len([s for family in metrics.stages.collect() for s in family.samples if s.name == COUNTER]) == 2
    found.remove()
    assert not [s for family in metrics.stages.collect() for s in family.samples]
