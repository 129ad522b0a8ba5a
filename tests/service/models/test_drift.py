"""Drift in a running service: the alarms and the evidence in the metrics."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from prometheus_client.parser import text_string_to_metric_families

from demur.service.inference.predictor import Predictor
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, serving
from tests.support.server import running

Array = npt.NDArray[Any]


def values(text: str) -> dict[str, float]:
    """Evidence and alarms, of the only model."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.name: sample.value for sample in samples if "drift" in sample.name and "created" not in sample.name}


def send(client: Client, inputs: Array) -> dict[str, float]:
    for part in np.array_split(inputs, max(1, len(inputs) // 50)):
        body = json.dumps({"inputs": part.tolist()}).encode()
        assert client.request("POST", "/predict", content=body).status_code == 200
        found = values(client.get("/metrics").text)
    return found


def unusual(count: int) -> Array:
    """Inputs next to a decision boundary."""
    return 1e-3 * np.random.default_rng(2).normal(size=(count, 4)).astype(np.float32)


def like_the_calibration_data(predictor: Predictor, count: int) -> Array:
    """Inputs drawn so that their scores are distributed as the calibration scores: each is the nearest of many."""
    generator = np.random.default_rng(0)
    many = 3 * generator.normal(size=(4000, 4)).astype(np.float32)
    scores = predictor.predict(many).score
    wanted = generator.choice(predictor.decision.pooled.scores, count)
    return many[[int(np.abs(scores - score).argmin()) for score in wanted]]


def test_ordinary_inputs_are_quiet_and_others_alarm(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path)
    ordinary = like_the_calibration_data(predictor, 400)
    with serving(predictor) as client:
        assert values(client.get("/metrics").text) == {"demur_drift_evidence": 0.0, "demur_drift_alarms_total": 0.0}
        found = send(client, ordinary)
        assert found["demur_drift_alarms_total"] == 0
        assert found["demur_drift_evidence"] < 2
        found = send(client, unusual(200))
        assert found["demur_drift_alarms_total"] >= 1


def test_an_input_that_is_sent_again_counts_once(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path)
    ordinary = np.unique(like_the_calibration_data(predictor, 400), axis=0)
    with serving(predictor) as client:
        for _ in range(10):
            found = send(client, ordinary)
        assert found["demur_drift_alarms_total"] == 0
        assert send(client, np.zeros((200, 4)))["demur_drift_alarms_total"] == 0  # one input, ever again


@pytest.mark.slow
def test_a_client_with_many_examples_hides_no_others(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path)
    busy = 3 * np.random.default_rng(1).normal(size=(128, 4)).astype(np.float32)
    with serving(predictor) as client:
        for part in np.array_split(unusual(200), 100):
            send(client, busy)
            found = send(client, part)
        assert found["demur_drift_alarms_total"] >= 1


@pytest.mark.slow
def test_several_workers_share_the_chance_of_a_false_alarm(classification: Synthetic) -> None:
    """Each demands more, so that all together keep the promise; and the sum of their alarms is seen."""
    with running(classification.path, DEMUR_WORKERS="2") as server:
        for part in np.array_split(unusual(1000), 100):
            body = json.dumps({"inputs": part.tolist()}).encode()
            assert server.request("POST", "/predict", body, {"Content-Type": "application/json"})[0] == 200
        found = values(server.request("GET", "/metrics")[2].decode())
        assert found["demur_drift_alarms_total"] >= 1
        assert server.terminate() == 0
    with serving(Predictor.load(classification.path), Settings(workers=7)) as client:
        (model,) = client.app.state.runtime.store
        assert model.metrics.drift.level == 700
