"""A mistake of the client that the graph tells: named in the reason of a rejection, and counted."""

from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from demur.service.inference.predictor import Predictor
from demur.service.monitoring.metrics import Metrics
from demur.service.series.model_metrics import ModelMetrics
from tests.support.added import write_added
from tests.support.client import serving

# Distances sqrt(x_0), of which those above 1.9 are rejected; and, in the second column, how alike to the mistake.
INPUTS = np.array([[9.0, 2, 0, 0], [9.0, -2, 0, 0], [0.04, 2, 0, 0]], np.float32)
SENTENCE = "It looks like inverted colours."


@pytest.fixture(params=[False, True], ids=["classification", "regression"])
def bundle(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_added(tmp_path, regression=request.param, mistakes=True, calibration={"score": "distance"}).path


def test_it_is_named_where_the_input_is_rejected_and_counted_everywhere(bundle: Path) -> None:
    predictor = Predictor.load(bundle)
    assert predictor.manifest.mistakes == ("inverted",)
    prediction = predictor.predict(INPUTS)
    assert prediction.mistake is not None
    assert prediction.mistake.tolist() == [0, -1, 0]
    assert prediction.rejected.tolist() == [True, True, False]
    with serving(predictor) as client:
        reasons = [one["reason"] for one in client.predict({"inputs": INPUTS.tolist()}).json()["predictions"]]
        text = client.get("/metrics").text
    assert reasons[0].endswith(SENTENCE)
    assert SENTENCE not in reasons[1]
    assert reasons[2] is None
    (counted,) = [line for line in text.splitlines() if line.startswith("demur_mistakes_total")]
    assert 'mistake="inverted"' in counted
    assert counted.endswith(" 2.0")


def test_its_series_go_with_the_model(bundle: Path) -> None:
    metrics = Metrics(CollectorRegistry())
    model = ModelMetrics(metrics, Predictor.load(bundle))
    model.announce()
    assert next(iter(metrics.mistakes.collect())).samples
    model.remove()
    assert not next(iter(metrics.mistakes.collect())).samples
