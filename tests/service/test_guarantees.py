"""What an operator may demand of a bundle: sets, intervals, rates by class, accuracy."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.bundle import BundleError, read_bundle
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from demur.service.maths.certified import CertifiedRule, certify
from demur.service.maths.class_rules import ClassRules
from demur.service.maths.outcomes import ClassOutcomes
from demur.service.maths.prediction_sets import conformal_quantile, set_scores
from demur.service.maths.predictive import gaussian_interval
from demur.service.models.loading import load_named
from demur.service.settings import Settings
from tests.support.bundles import Synthetic, rewrite
from tests.support.client import Client, serving
from tests.support.outcomes import SET_SCORE, draw_inputs, draw_targets, keeping_outcomes


@pytest.fixture(scope="module")
def labelled(classification: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keeping_outcomes(classification.path, tmp_path_factory.mktemp("outcomes") / "labelled", 900, 900)


@pytest.fixture(scope="module")
def measured(regression: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keeping_outcomes(regression.path, tmp_path_factory.mktemp("outcomes") / "measured", 200)


def predictions(client: Client, inputs: Any, query: str = "") -> list[dict[str, Any]]:
    response = client.request("POST", f"/predict?detail=full{query}", content=json.dumps({"inputs": inputs}).encode())
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["predictions"]
    return found


def rows(predictor: Predictor, count: int, seed: int = 1) -> np.ndarray:
    return draw_inputs(predictor, np.random.default_rng(seed), count)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_an_answer_has_a_prediction_set(labelled: Path, level: float) -> None:
    predictor = Predictor.load(labelled, policy=Policy(interval_level=level))
    inputs, bundle = rows(predictor, 40), read_bundle(labelled)
    p = predictor.predict(inputs).probabilities
    assert p is not None
    assert isinstance(bundle.calibration.outcomes, ClassOutcomes)
    q = conformal_quantile(np.sort(bundle.calibration.outcomes.set_scores), level)
    with serving(predictor) as client:
        for one, row in zip(predictions(client, inputs.tolist()), p, strict=True):
            scores = set_scores(row[np.newaxis], SET_SCORE.penalty, SET_SCORE.unpenalised)[0]
            expected = [f"class {k}" for k in np.argsort(-row) if scores[k] <= q or k == row.argmax()]
            assert one["prediction_set"] == {"level": level, "size": len(expected), "labels": expected}


def test_a_prediction_set_by_class_has_each_classes_own_quantile(labelled: Path) -> None:
    predictor = Predictor.load(labelled, policy=Policy(interval_level=0.8, sets_by_class=True))
    inputs, outcomes = rows(predictor, 40), read_bundle(labelled).calibration.outcomes
    p = predictor.predict(inputs).probabilities
    assert p is not None
    assert isinstance(outcomes, ClassOutcomes)
    own = [np.sort(outcomes.set_scores[outcomes.classes == k]) for k in range(3)]
    q = [conformal_quantile(scores, 0.8) for scores in own]
    with serving(predictor) as client:
        for one, row in zip(predictions(client, inputs.tolist()), p, strict=True):
            scores = set_scores(row[np.newaxis], SET_SCORE.penalty, SET_SCORE.unpenalised)[0]
            expected = [f"class {k}" for k in np.argsort(-row) if scores[k] <= q[k] or k == row.argmax()]
            assert one["prediction_set"] == {"level": 0.8, "size": len(expected), "labels": expected}


def test_sets_by_class_need_the_true_classes(labelled: Path, measured: Path, tmp_path: Path) -> None:
    calibration = read_bundle(labelled).calibration
    assert isinstance(calibration.outcomes, ClassOutcomes)
    unknown = replace(calibration, outcomes=replace(calibration.outcomes, classes=None))
    older, asked = rewrite(labelled, tmp_path / "older", calibration=unknown), Policy(sets_by_class=True)
    with pytest.raises(BundleError, match=r"sets_by_class: found no true classes .* fit the bundle anew, or serve"):
        Predictor.load(older, policy=asked)
    with pytest.raises(BundleError, match="sets_by_class: found a regression, expected a classification"):
        Predictor.load(measured, policy=asked)


def test_intervals_are_as_wide_as_held_out_residuals_demand(measured: Path) -> None:
    predictor = Predictor.load(measured)
    inputs, rng = rows(predictor, 2000), np.random.default_rng(5)
    prediction = predictor.predict(inputs)
    targets = draw_targets(prediction, rng)
    with serving(predictor, Settings(max_rows=2000)) as client:
        found = [one["interval"] for one in predictions(client, inputs.tolist())]
    assert all(one["kind"] == "conformal" for one in found)
    assert prediction.std is not None
    ends = {
        "conformal": [np.array([one[end] for one in found]) for end in ("low", "high")],
        "gaussian": gaussian_interval(prediction.mean, prediction.std, 0.95),
    }
    covered = {kind: ((low <= targets) & (targets <= high)).mean(axis=0) for kind, (low, high) in ends.items()}
    assert np.all(np.abs(covered["conformal"] - 0.95) < 0.04)
    assert np.all(covered["gaussian"] < 0.92)


def test_too_few_residuals_for_the_level_give_a_gaussian_interval(measured: Path) -> None:
    predictor = Predictor.load(measured, policy=Policy(interval_level=0.999))
    with serving(predictor) as client:
        (one,) = predictions(client, rows(predictor, 1).tolist())
        assert one["interval"]["kind"] == "gaussian"
    assert predictor.decision.expected_accuracy is None


def test_the_rate_holds_within_each_predicted_class(labelled: Path) -> None:
    predictor = Predictor.load(labelled, policy=Policy(false_reject_rate=0.1, reject_by_class=True))
    rule = predictor.decision.rule
    assert isinstance(rule, ClassRules)
    inputs = rows(predictor, 60)
    labels = predictor.predict(inputs).probabilities.argmax(axis=1)  # type: ignore[union-attr]
    settings = Settings(requested_rates=(0.02, 0.3))
    with serving(predictor, settings) as client:
        found = predictions(client, inputs.tolist())
        for one, label in zip(found, labels, strict=True):
            own = rule.rules[rule.groups[label]]
            assert one["threshold"] == pytest.approx(own.threshold, rel=1e-5)
            assert one["p_value"] == pytest.approx(own.p_value(np.array([one["score"]]))[0], rel=1e-5)
            assert one["rejected"] is (one["p_value"] <= 0.1)
            sentence = f"of {len(own.scores):,} held-out inputs predicted to be of its class or of one like it"
            assert one["reason"] is None or sentence in one["reason"]
        assert any(one["rejected"] for one in found)
        asked = predictions(client, inputs.tolist(), "&false_reject_rate=0.3")
        assert all(one["rejected"] is (one["p_value"] <= 0.3) for one in asked)
        card = client.get("/model").json()["decision"]
        assert card == {
            "false_reject_rate": 0.1,
            "thresholds": {f"class {k}": rule.rules[rule.groups[k]].threshold for k in range(3)},
        }


def test_a_warning_names_classes_that_share_a_threshold(
    classification: Synthetic, labelled: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    many = keeping_outcomes(classification.path, tmp_path / "bundle", 9000, 900)
    settings = Settings(bundle=(str(many),), reject_by_class=True, false_reject_rate=0.1)
    with caplog.at_level(logging.WARNING):
        load_named(settings)
        assert "share a threshold" not in caplog.text
        load_named(settings.model_copy(update={"bundle": (str(labelled),)}))
    assert "2 of 3 classes share a threshold" in caplog.text
    assert caplog.text.rstrip().endswith("class 0, class 2")


def test_the_accepted_are_as_accurate_as_certified(labelled: Path) -> None:
    accuracy = 0.7
    predictor = Predictor.load(labelled, policy=Policy(accepted_accuracy=accuracy))
    rule, outcomes = predictor.decision.rule, read_bundle(labelled).calibration.outcomes
    assert isinstance(rule, CertifiedRule)
    assert isinstance(outcomes, ClassOutcomes)
    assert outcomes.tuning is not None
    assert rule.certificate == certify(outcomes.calibration, outcomes.tuning, accuracy, 0.95)
    inputs, rng = rows(predictor, 4000), np.random.default_rng(9)
    prediction = predictor.predict(inputs)
    targets, accepted = draw_targets(prediction, rng), ~prediction.rejected
    assert 0.1 < accepted.mean() < 1
    right = prediction.probabilities.argmax(axis=1) == targets  # type: ignore[union-attr]
    assert right[accepted].mean() > accuracy
    with serving(predictor) as client:
        found = predictions(client, inputs[:50].tolist())
        assert all(one["rejected"] is (one["score"] > rule.threshold) for one in found)
        certified = client.get("/model").json()["decision"]["certified"]
        assert certified["accuracy"] == accuracy
        assert certified["errors"] < certified["accepted"] * (1 - accuracy)


def test_what_cannot_be_certified_is_refused(labelled: Path, measured: Path) -> None:
    asked = Policy(accepted_accuracy=0.9999)
    with pytest.raises(BundleError, match=r"accepted_accuracy: found \d+ errors among .* about \d+ more held-out"):
        Predictor.load(labelled, policy=asked)
    with pytest.raises(BundleError, match="by_class: found a regression, expected a classification"):
        Predictor.load(measured, policy=Policy(reject_by_class=True))


def test_without_examples_that_tune_nothing_is_certified(classification: Synthetic, tmp_path: Path) -> None:
    path = keeping_outcomes(classification.path, tmp_path / "bundle", 500, 0)
    with pytest.raises(BundleError, match="found no held-out examples that tune"):
        Predictor.load(path, policy=Policy(accepted_accuracy=0.6))
    assert isinstance(Predictor.load(path, policy=Policy(reject_by_class=True)).decision.rule, ClassRules)


@pytest.mark.parametrize(
    "other", [{"false_reject_rate": 0.1}, {"requested_rates": (0.1, 0.2)}, {"reject_by_class": True}], ids=str
)
def test_an_accuracy_and_a_rate_contradict_each_other(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"accepted_accuracy: found 0.9 and {next(iter(other))} too"):
        Settings(accepted_accuracy=0.9, **other)
    with pytest.raises(ValueError, match=r"^accepted_accuracy: found 0\.9 and false_reject_rate too, expected"):
        Policy(false_reject_rate=0.1, accepted_accuracy=0.9)


def test_a_pickled_predictor_decides_as_before(labelled: Path, caplog: pytest.LogCaptureFixture) -> None:
    import pickle

    with caplog.at_level(logging.WARNING):
        for policy in (Policy(false_reject_rate=0.2, reject_by_class=True), Policy(accepted_accuracy=0.7)):
            predictor = Predictor.load(labelled, policy=policy)
            inputs = rows(predictor, 20)
            again = pickle.loads(pickle.dumps(predictor))
            np.testing.assert_array_equal(again.predict(inputs).rejected, predictor.predict(inputs).rejected)
