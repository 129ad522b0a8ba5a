"""How the held-out examples turned out, as the bundle keeps it."""

from dataclasses import dataclass

import numpy as np

from demur.service.bundle import Outcomes as OutcomesPart
from demur.service.bundle import SetScore
from demur.service.inference.predictor import Prediction
from demur.service.maths.estimated_accuracy import confidence
from demur.service.maths.outcomes import ClassOutcomes, LabelOutcomes, Outcomes, RegressionOutcomes, Verdicts
from demur.service.maths.prediction_sets import LIKELY, label_set_scores, set_scores, tuned_sets

from ..data.held_out import HeldOut
from ..runtime.arrays import Array, to_numpy
from .scoring import with_margin

PLAIN_SETS = (0.0, 1)  # without examples that tune


@dataclass(frozen=True)
class Predicted:
    """Held-out examples and what the service predicts for them."""

    data: HeldOut
    prediction: Prediction


def outcomes_of(conformal: Predicted, tuning: Predicted | None) -> tuple[Outcomes, OutcomesPart]:
    """What the service needs for its guarantees, and what the manifest says of it.

    conformal: the examples that set the threshold; tuning: others, by which the set score is chosen.
    """
    prediction, targets = conformal.prediction, to_numpy(conformal.data.targets)
    order = np.argsort(prediction.score, kind="stable")
    if prediction.probabilities is None:
        assert prediction.std is not None
        residuals = np.abs(targets - prediction.mean.astype(np.float64)) / prediction.std
        return RegressionOutcomes(with_margin(residuals[order], 0.0)), OutcomesPart(0, None)
    known = None if tuning is None else _verdicts(tuning)
    count, confidences = 0 if known is None else len(known), confidence(prediction.probabilities, prediction.multilabel)
    if prediction.multilabel:
        scores = label_set_scores(prediction.probabilities)
        held = np.take_along_axis(scores, targets.astype(int)[:, :, np.newaxis], axis=2)[:, :, 0]
        held = with_margin(held, 0.0, 1.0)[order]
        return LabelOutcomes(_verdicts(conformal), held, known, confidences[order]), OutcomesPart(count, None)
    penalty, unpenalised = PLAIN_SETS if tuning is None else _tuned(tuning)
    own = set_scores(prediction.probabilities, penalty, unpenalised)[np.arange(len(targets)), targets]
    own = with_margin(own, 0.0, 1.0)[order]
    outcomes = ClassOutcomes(_verdicts(conformal), own, known, confidences[order], targets[order])
    return outcomes, OutcomesPart(count, SetScore(penalty, unpenalised))


def _tuned(tuning: Predicted) -> tuple[float, int]:
    assert tuning.prediction.probabilities is not None
    return tuned_sets(tuning.prediction.probabilities, to_numpy(tuning.data.targets))


def _verdicts(predicted: Predicted) -> Verdicts:
    """In ascending order of the score."""
    prediction, targets = predicted.prediction, to_numpy(predicted.data.targets)
    assert prediction.probabilities is not None
    order: Array = np.argsort(prediction.score, kind="stable")
    if prediction.multilabel:
        right = ((prediction.probabilities >= LIKELY) == (targets > 0)).all(axis=1)
        return Verdicts(prediction.score[order], np.zeros(len(order), np.int32), right[order])
    labels = prediction.probabilities.argmax(axis=1)[order]
    return Verdicts(prediction.score[order], labels.astype(np.int32), labels == targets[order])
