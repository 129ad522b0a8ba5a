"""Predictions -> what is remembered of them, and labels -> how right they were."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from probity.service.codec.answers import Coverage
from probity.service.codec.decoding import FieldError
from probity.service.feedback.answers import (
    Answers,
    Decision,
    Outcomes,
    class_outcomes,
    interval_outcomes,
    label_outcomes,
)
from probity.service.feedback.database import Answered
from probity.service.format.manifest import Task
from probity.service.inference.deciding import Rule
from probity.service.inference.predictor import PlainPrediction, Prediction, decided_by
from probity.service.maths.prediction_sets import LIKELY
from probity.service.models.served import AnyPrediction, ServedModel
from probity.service.schemas import FeedbackRequest

Array = npt.NDArray[Any]
MOST_CHARACTERS = 128  # of a request's id
LARGEST = 1e150  # its square is finite
SHOWN = 10  # class names in an error


def is_memorable(request_id: str) -> bool:
    """Whether a label may name this id: ids of the Open Inference Protocol may be anything."""
    return 0 < len(request_id) <= MOST_CHARACTERS and request_id.isprintable()


def answered_by(
    model: ServedModel, rule: Rule, request_id: str, prediction: AnyPrediction, coverage: Coverage
) -> Answered:
    """What is remembered of an answer that `rule` has decided, with the decision by the model's own rule: at rates that
    clients choose, what is expected of the accepted does not hold. Degraded answers of a regression have no interval:
    NaN."""
    if isinstance(prediction, Prediction) and rule is not model.predictor.decides:
        prediction = decided_by(model.predictor.decides, prediction)
    return Answered(request_id, model.name, model.version, model.digest, _answers(model, prediction, coverage))


def _answers(model: ServedModel, prediction: AnyPrediction, coverage: Coverage) -> Answers:
    if isinstance(prediction, PlainPrediction):
        decisions, probabilities = np.full(len(prediction), Decision.DEGRADED), prediction.map_probabilities
    else:
        decisions = np.where(prediction.rejected, Decision.REJECTED, Decision.ACCEPTED)
        probabilities = prediction.probabilities
    if probabilities is not None and model.manifest.task == "multilabel":
        columns = [probabilities >= LIKELY, np.maximum(probabilities, 1 - probabilities).prod(axis=1, keepdims=True)]
    elif probabilities is not None:
        columns = [probabilities.argmax(axis=1)[:, np.newaxis], probabilities.max(axis=1, keepdims=True)]
    elif isinstance(prediction, PlainPrediction):
        columns = [prediction.mean, *[np.full_like(prediction.mean, np.nan)] * 2]
    else:
        _, low, high = coverage.intervals(prediction, model.predictor)
        columns = [prediction.mean, low, high]
    return Answers(decisions.astype(np.uint8), np.concatenate(columns, axis=1, dtype=np.float64))


def outcomes_of(model: ServedModel, answers: Answers, request: FeedbackRequest, level: float) -> Outcomes:
    """How right the answers were; level: that of intervals. Raises `FieldError` for labels that do not fit them."""
    _refuse_other_kind(model.manifest.task, request)
    if model.manifest.task == "classification":
        labels = _all(request.labels, "labels", "class names", answers)
        return class_outcomes(answers, _classes(labels, model.manifest.labels))
    if model.manifest.task == "multilabel":
        labels = _all(request.labels, "labels", "lists of labels", answers)
        return label_outcomes(answers, _label_rows(labels, model.manifest.labels))
    values, outputs = _all(request.values, "values", "numbers", answers), model.manifest.outputs
    rows = [_row(value, outputs, index) for index, value in enumerate(values)]
    return interval_outcomes(answers, np.array(rows, np.float64).reshape(len(rows), outputs), level)


def errors_of(model: ServedModel, answers: Answers, outcomes: Outcomes) -> Array:
    """What the sequential test bets on, (B,): the errors of accepted examples, NaN for others.

    The level of a regression's intervals is meant for all inputs, rejected ones too.
    """
    counts = answers.decisions == Decision.ACCEPTED
    if model.manifest.task == "regression":
        counts = answers.decisions != Decision.DEGRADED
    errors: Array = np.where(counts, 1 - outcomes.correct, np.nan)
    return errors


def _refuse_other_kind(task: Task, request: FeedbackRequest) -> None:
    """`FieldError` for values of a classification, or labels of a regression."""
    field, wanted = ("labels", "values") if task == "regression" else ("values", "labels")
    if getattr(request, field) is not None:
        raise FieldError(field, f"found some for a {task} model, expected {wanted} alone")


def _all(given: list[Any] | None, field: str, what: str, answers: Answers) -> list[Any]:
    if given is None:
        raise FieldError(field, f"found none, expected a list of {what}, one for each example of the request")
    if len(given) != len(answers):
        raise FieldError(field, f"found {len(given)}, expected {len(answers)}, one for each example; null is unknown")
    return given


def _classes(labels: list[Any], names: Sequence[str], field: str = "labels") -> Array:
    """The classes of labels, (B,); NaN for None. A number is the class of this name, never a place in the list."""
    known = {name: index for index, name in enumerate(names)}
    classes = np.full(len(labels), np.nan)
    for index, label in enumerate(labels):
        if label is None:
            continue
        name = f"{label}" if type(label) in (str, int) else None
        if name is None or name not in known:
            expected = ", ".join(map(repr, names[:SHOWN])) + (", ..." if len(names) > SHOWN else "")
            raise FieldError(f"{field}[{index}]", f"found {label!r:.100}, expected one of {expected}")
        classes[index] = known[name]
    return classes


def _label_rows(examples: list[Any], names: Sequence[str]) -> Array:
    """Which labels each example has, (B, K) of 0 and 1; NaN for None."""
    rows = np.zeros((len(examples), len(names)))
    for index, labels in enumerate(examples):
        if labels is None:
            rows[index] = np.nan
            continue
        if not isinstance(labels, list):
            expected = "the list of the labels that the example has, or null"
            raise FieldError(f"labels[{index}]", f"found {labels!r:.100}, expected {expected}")
        if None in labels:
            raise FieldError(f"labels[{index}]", "found null in the list, expected names")
        rows[index, _classes(labels, names, f"labels[{index}]").astype(int)] = 1
    return rows


def _row(value: Any, outputs: int, index: int) -> list[float]:
    """The true value of each output, NaN for None."""
    if value is None:
        return [math.nan] * outputs
    row = value if isinstance(value, list) else [value]
    if len(row) != outputs or not all(type(number) in (int, float) and abs(number) <= LARGEST for number in row):
        expected = "a number" if outputs == 1 else f"a list of {outputs} numbers, one for each output,"
        expected += f" of size {LARGEST:g} at most"
        raise FieldError(f"values[{index}]", f"found {value!r:.100}, expected {expected}")
    return row
