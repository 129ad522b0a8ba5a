"""Bundles that keep how their held-out examples turned out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.service.bundle import CalibrationTensors, Outcomes, SetScore, read_bundle
from demur.service.inference.predictor import Prediction, Predictor
from demur.service.maths.outcomes import ClassOutcomes, RegressionOutcomes, Verdicts
from demur.service.maths.prediction_sets import set_scores
from demur.service.maths.rejection import RejectionRule
from tests.support.bundles import rewrite

Array = npt.NDArray[Any]
SET_SCORE = SetScore(penalty=0.1, unpenalised=1)


def draw_inputs(predictor: Predictor, rng: np.random.Generator, count: int) -> Array:
    return rng.normal(size=(count, *predictor.manifest.input.shape)).astype(np.float32)


def draw_targets(prediction: Prediction, rng: np.random.Generator) -> Array:
    """Classes by the plain network's probabilities, or values with heavy-tailed noise."""
    if prediction.map_probabilities is None:
        found: Array = prediction.mean + rng.standard_t(2, size=prediction.mean.shape)
        return found
    return (prediction.map_probabilities.cumsum(axis=1) > rng.random((len(prediction), 1))).argmax(axis=1)


def keeping_outcomes(source: Path, out: Path, examples: int = 400, tuning: int = 300, seed: int = 0) -> Path:
    """The bundle at `source` with scores and outcomes of examples drawn from `seed`, written to `out`."""
    rng, predictor, bundle = np.random.default_rng(seed), Predictor.load(source), read_bundle(source)
    prediction = predictor.predict(draw_inputs(predictor, rng, examples))
    order, targets = np.argsort(prediction.score, kind="stable"), draw_targets(prediction, rng)
    scores = prediction.score[order]
    if prediction.probabilities is None:
        assert prediction.std is not None
        residuals = np.abs(targets - prediction.mean.astype(np.float64)) / prediction.std
        outcomes: ClassOutcomes | RegressionOutcomes = RegressionOutcomes(residuals[order])
        kept = Outcomes(0, None)
    else:
        p = prediction.probabilities
        own = set_scores(p, SET_SCORE.penalty, SET_SCORE.unpenalised)[np.arange(examples), targets]
        others = _tuning(predictor, rng, tuning)
        outcomes = ClassOutcomes(verdicts(prediction, targets), own[order], others, classes=targets[order])
        kept = Outcomes(tuning, SET_SCORE)
    rule = RejectionRule(scores, bundle.manifest.calibration.false_reject_rate)
    calibration = replace(bundle.manifest.calibration, examples=examples, threshold=rule.threshold, outcomes=kept)
    manifest = replace(bundle.manifest, calibration=calibration)
    return rewrite(source, out, manifest=manifest, calibration=CalibrationTensors(scores, outcomes))


def _tuning(predictor: Predictor, rng: np.random.Generator, count: int) -> Verdicts | None:
    if not count:
        return None
    prediction = predictor.predict(draw_inputs(predictor, rng, count))
    return verdicts(prediction, draw_targets(prediction, rng))


def verdicts(prediction: Prediction, targets: Array) -> Verdicts:
    assert prediction.probabilities is not None
    order = np.argsort(prediction.score, kind="stable")
    labels = prediction.probabilities.argmax(axis=1)[order].astype(np.int32)
    return Verdicts(prediction.score[order], labels, labels == targets[order])


def sure_of_held_out(source: Path, out: Path, confidence: float) -> Path:
    """The bundle of a classification at `source`, written to `out`, which was so sure of each held-out example."""
    calibration = read_bundle(source).calibration
    assert isinstance(calibration.outcomes, ClassOutcomes)
    outcomes = replace(calibration.outcomes, confidences=np.full(len(calibration.scores), confidence))
    return rewrite(source, out, calibration=replace(calibration, outcomes=outcomes))
