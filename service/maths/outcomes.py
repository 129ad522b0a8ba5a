"""How held-out examples turned out: what guarantees rest on, beside the scores themselves."""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Verdicts:
    """Scores of a classification's held-out examples, ascending, and for each the class that was predicted and whether
    it was right: (n,) float64, int32 and bool."""

    scores: Array
    predicted: Array
    correct: Array

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class ClassOutcomes:
    """A classification's outcomes.

    calibration: of the examples that set the threshold; set_scores: their true classes' scores for prediction sets
    (`demur.service.maths.prediction_sets`), (n,), in the order of the calibration scores. tuning: of other examples,
    by which anything may be chosen; None where there are none. confidences: the probabilities of the calibration
    examples' answers to be right (`demur.service.maths.estimated_accuracy`), (n,); classes (n,) int32: the true ones.
    Both None where they are not known.
    """

    calibration: Verdicts
    set_scores: Array
    tuning: Verdicts | None
    confidences: Array | None = None
    classes: Array | None = None


@dataclass(frozen=True)
class LabelOutcomes(ClassOutcomes):
    """Outcomes of examples with several labels. A prediction is right where all labels are; `predicted` is 0: there is
    no one class. set_scores (n, K): of what is true of each label (`label_set_scores`)."""


@dataclass(frozen=True)
class RegressionOutcomes:
    """A regression's outcomes: residuals |y - mean| / std of the examples that set the threshold, (n, K), in the order
    of their scores; std is that of the predictive distribution."""

    residuals: Array


Outcomes = ClassOutcomes | RegressionOutcomes
