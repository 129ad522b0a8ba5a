"""What is remembered of a request's answers, and how right they were once labels are known. Pure NumPy."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Decision(IntEnum):
    """What was decided about an example; degraded answers are the plain network's, without a decision."""

    ACCEPTED, REJECTED, DEGRADED = 0, 1, 2


@dataclass(frozen=True)
class Answers:
    """The answers of one request with B examples: decisions (B,) uint8, and what was answered, values (B, C) float64.

    Of a classification: the predicted class and its probability. Of K labels an example: 1 for each that it is said to
    have, and the probability that all are right, C = K + 1. Of a regression with K outputs: their means, and the
    lower and upper ends of their intervals, C = 3 K.
    """

    decisions: Array
    values: Array

    def __len__(self) -> int:
        return len(self.decisions)


@dataclass(frozen=True)
class Outcomes:
    """How right answers were, (B,) each; NaN where the truth is not known.

    correct: 1 or 0, or of a regression the share of outputs whose interval holds the truth. confidence: what the answer
    said of it. squared_error: of a regression, the mean over the outputs; else 0.
    """

    correct: Array
    confidence: Array
    squared_error: Array

    @property
    def known(self) -> Array:
        """(B,) bool: whether the truth is known."""
        known: Array = ~np.isnan(self.correct)
        return known


def class_outcomes(answers: Answers, classes: Array) -> Outcomes:
    """classes (B,): the true ones, NaN where unknown."""
    predicted, confidence = answers.values.T
    correct = np.where(np.isnan(classes), np.nan, predicted == classes)
    return Outcomes(correct, confidence, np.zeros(len(answers)))


def label_outcomes(answers: Answers, truths: Array) -> Outcomes:
    """truths (B, K) of 0 and 1, NaN in rows that are unknown; an answer is correct where all labels are."""
    said, confidence = answers.values[:, :-1], answers.values[:, -1]
    correct = np.where(np.isnan(truths).any(axis=1), np.nan, (said == truths).all(axis=1))
    return Outcomes(correct, confidence, np.zeros(len(answers)))


def interval_outcomes(answers: Answers, truths: Array, level: float) -> Outcomes:
    """truths (B, K), NaN in rows that are unknown; level: what share of the truths intervals hold by design.

    Nothing is known of answers without an interval, which are degraded ones.
    """
    mean, low, high = np.split(answers.values, 3, axis=1)
    unknown = np.isnan(truths + low + high).any(axis=1)
    correct = np.where(unknown, np.nan, ((low <= truths) & (truths <= high)).mean(axis=1))
    return Outcomes(correct, np.full(len(answers), level), np.square(truths - mean).mean(axis=1))
