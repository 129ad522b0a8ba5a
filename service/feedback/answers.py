"""What a receipt holds of answers, and how right they were once labels are known. Pure NumPy."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ..format.manifest import Task

Array = npt.NDArray[Any]


class Decision(IntEnum):
    """What was decided about an example."""

    ACCEPTED, REJECTED = 0, 1


def layout(task: Task, outputs: int) -> np.dtype[np.void]:
    """The answer to one example of a model with K outputs; "answers" are arrays (B,) of it.

    Of a classification: the predicted class, and its probability to seven digits. Of K labels an example: a bit for
    each that it is said to have, and the probability that all are right. Of a regression: the means, and the ends of
    the intervals.
    """
    least = np.min_scalar_type(outputs - 1).newbyteorder("<")
    answers: dict[Task, list[tuple[Any, ...]]] = {
        "classification": [("class", least), ("confidence", "<f4")],
        "multilabel": [("labels", "u1", (-(-outputs // 8),)), ("confidence", "<f4")],
        "regression": [(name, "<f8", (outputs,)) for name in ("mean", "low", "high")],
    }
    return np.dtype([("decision", "u1"), *answers[task]])


def parse_answers(data: bytes, task: Task, outputs: int) -> Array:
    """The answers in a receipt; raises `ValueError` for bytes that are none of this task."""
    answers: Array = np.frombuffer(data, layout(task, outputs))
    sound = answers["decision"] <= max(Decision)
    if task == "regression":
        sound &= np.isfinite(answers["mean"]).all(axis=1)
    else:
        sound &= (answers["confidence"] >= 0) & (answers["confidence"] <= 1)
    if task == "classification":
        sound &= answers["class"] < outputs
    if not sound.all() or not len(sound):
        raise ValueError(f"found answers that a {task} does not give")
    return answers


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


def outcomes_of(answers: Array, truths: Array, level: float) -> Outcomes:
    """How right the answers were.

    truths (B, C), NaN in rows that are unknown: of a classification the classes, C = 1; of several labels 0 or 1 for
    each, all of which must be right; of a regression the values. level: what share of the truths intervals hold by
    design.
    """
    unknown, fields = np.isnan(truths).any(axis=1), answers.dtype.names or ()
    if "mean" in fields:
        low, high = answers["low"], answers["high"]
        correct = ((low <= truths) & (truths <= high)).mean(axis=1)
        confidence, errors = np.full(len(answers), level), np.square(truths - answers["mean"]).mean(axis=1)
    else:
        several = "labels" in fields
        said = np.unpackbits(answers["labels"], axis=1, count=truths.shape[1]) if several else answers["class"][:, None]
        correct = (said == truths).all(axis=1)
        confidence, errors = answers["confidence"].astype(np.float64), np.zeros(len(answers))
    return Outcomes(np.where(unknown, np.nan, correct), confidence, errors)
