"""Answers of a bundle with added weights: the two parts of the variances, in both protocols and in the card."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.codec.answers import View, predictions_json
from demur.service.inference.predictor import Predictor
from demur.service.schemas import ClassificationPrediction, RegressionPrediction, ValueVarianceParts, VarianceParts
from tests.support.added import ADDED, added_variance, write_added
from tests.support.bundles import FEATURE_SPEC, Synthetic
from tests.support.client import Client, serving
from tests.support.v2 import outputs, post

CLOSE: dict[str, Any] = {"rel": 1e-3, "abs": 1e-5}
INPUTS = np.random.default_rng(7).normal(size=(6, *FEATURE_SPEC.shape)).astype(np.float32)
INPUTS[:, 0] = np.abs(INPUTS[:, 0])


@pytest.fixture(scope="module", params=["classification", "regression"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Synthetic, Client]]:
    synthetic = write_added(tmp_path_factory.mktemp(request.param), regression=request.param == "regression")
    with serving(Predictor.load(synthetic.path)) as client:
        yield synthetic, client


def values(of_outputs: dict[str, float] | list[float]) -> list[float]:
    return list(of_outputs.values()) if isinstance(of_outputs, dict) else of_outputs


def test_an_answer_gives_both_parts_of_the_variances(served: tuple[Synthetic, Client]) -> None:
    synthetic, client = served
    response = client.predict({"inputs": INPUTS.tolist()}, "?detail=full")
    assert response.status_code == 200, response.text
    subnetwork, added = synthetic.variance(INPUTS), added_variance(INPUTS)
    schema = ClassificationPrediction if synthetic.manifest.task == "classification" else RegressionPrediction
    for i, one in enumerate(response.json()["predictions"]):
        assert set(one) == set(schema.model_fields)
        kind = VarianceParts if schema is ClassificationPrediction else ValueVarianceParts
        parts = kind.model_validate(one["variance_parts"])
        assert np.ravel(parts.added) == pytest.approx(np.full(np.size(parts.added), added[i]), **CLOSE)
        first, total = values(parts.subnetwork), values(one.get("logit_variance") or one["variance"])
        assert first == pytest.approx(subnetwork[i], **CLOSE)
        assert np.add(first, parts.added) == pytest.approx(total, **CLOSE)


def test_a_bundle_without_them_has_no_parts(classification: Synthetic) -> None:
    with serving(Predictor.load(classification.path)) as client:
        (found,) = client.predict({"inputs": [[0.0] * 4]}, "?detail=full").json()["predictions"]
        assert found["variance_parts"] is None


def test_no_part_is_below_zero_for_rounding(tmp_path: Path) -> None:
    """Next to a large part, a small one is lost when they are added in float32."""
    predictor = Predictor.load(write_added(tmp_path).path)
    found = predictor.predict(1e6 * INPUTS)
    view = View(["variance_parts"])
    answers = predictions_json(found, predictor.decision, view)
    assert min(min(one["variance_parts"]["subnetwork"].values()) for one in answers) >= 0


def test_the_open_inference_protocol_gives_the_part_of_added_weights(served: tuple[Synthetic, Client]) -> None:
    synthetic, client = served
    path = f"/v2/models/{synthetic.manifest.name}"
    described = {output["name"]: output for output in client.get(path).json()["outputs"]}
    assert described["added_variance"] == {"name": "added_variance", "datatype": "FP32", "shape": [-1]}
    data = INPUTS.ravel().tolist()
    tensor = {"name": "inputs", "shape": list(INPUTS.shape), "datatype": "FP32", "data": data}
    found = outputs(post(client, {"inputs": [tensor]}, f"{path}/infer"))
    assert found["added_variance"]["data"] == pytest.approx(added_variance(INPUTS), **CLOSE)


def test_the_card_has_them(served: tuple[Synthetic, Client]) -> None:
    card = served[1].get("/model").json()
    assert card["added_weights"]["explanation"] == ADDED.explanation
    assert card["added_weights"]["cost"] == ADDED.cost
    assert card["map_temperature"] == served[0].manifest.map_temperature
