"""Predictions -> receipts, and receipts with labels -> how right the answers were."""

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..codec.decoding import FieldError
from ..feedback.answers import Array, Decision, Outcomes, layout, outcomes_of, parse_answers
from ..feedback.labelled import LabelledExamples
from ..feedback.receipts import Receipt, ReceiptError, ReceiptSigner
from ..format.manifest import Manifest, Task
from ..inference.decision import Decision as Decides
from ..inference.predictor import Prediction
from ..maths.estimated_accuracy import confidence
from ..maths.prediction_sets import LIKELY
from ..models.served import ServedModel
from ..schemas import FeedbackRequest, FeedbackResponse, ModelName

LARGEST = 1e150  # its square is finite
SHOWN = 10  # class names in an error


class Feedback:
    """Gives receipts for answers, and counts the labels that come with them. Threads may share it."""

    def __init__(self, signer: ReceiptSigner) -> None:
        self._signer, self._labelled, self._lock = signer, LabelledExamples(), threading.Lock()

    def receipt(self, model: ServedModel, decision: Decides, prediction: Prediction) -> str:
        """The receipt of an answer that `decision` has decided.

        It holds the decision by the model's own rule: at rates that clients choose, what is expected of the accepted
        does not hold.
        """
        own = model.predictor.decision
        if decision is not own:
            prediction = own.again(prediction)
        answers = answers_of(model, prediction)
        return self._signer.sign(model.name, model.version, model.digest, answers.tobytes())

    def open(self, receipt: str) -> Receipt:
        """What was signed; raises `FieldError`."""
        try:
            return self._signer.open(receipt)
        except ReceiptError as error:
            raise FieldError("receipt", f"{error}") from None

    def count(self, model: ServedModel, receipt: Receipt, request: FeedbackRequest, level: float) -> FeedbackResponse:
        """Count the labels of a receipt of this model; level: that of intervals. Raises `FieldError` for what does not
        fit, and counts none."""
        try:
            answers = parse_answers(receipt.answers, model.manifest.task, model.manifest.outputs)
        except ValueError as error:
            raise FieldError("receipt", f"{error}, expected those of {model.name} {model.version}") from None
        outcomes = outcomes_of(answers, truths_of(model.manifest, request, len(answers)), level)
        errors = _errors_of(model, answers, outcomes)
        with self._lock:
            new = self._labelled.add(receipt.identity, outcomes.known)
            model.metrics.feedback.count(outcomes, answers["decision"], errors, new)
        counted, known = int(new.sum()), int(outcomes.known.sum())
        named = ModelName(name=model.name, version=model.version, digest=model.digest)
        return FeedbackResponse(model=named, examples=len(new), counted=counted, already_labelled=known - counted)


def answers_of(model: ServedModel, prediction: Prediction) -> Array:
    """What a receipt holds of a prediction, (B,)."""
    task = model.manifest.task
    answers = np.empty(len(prediction), layout(task, model.manifest.outputs))
    answers["decision"], probabilities = prediction.rejected, prediction.probabilities
    if probabilities is None:
        answers["mean"] = prediction.mean
        answers["low"], answers["high"] = model.predictor.decision.intervals(prediction)
    elif task == "multilabel":
        answers["labels"] = np.packbits(probabilities >= LIKELY, axis=1)
    else:
        answers["class"] = probabilities.argmax(axis=1)
    if probabilities is not None:
        answers["confidence"] = confidence(probabilities, task == "multilabel")
    return answers


def _errors_of(model: ServedModel, answers: Array, outcomes: Outcomes) -> Array:
    """What the sequential test observes, (B,): the errors of accepted examples, NaN for others.

    The level of a regression's intervals is meant for all inputs, rejected ones too.
    """
    counts = (answers["decision"] == Decision.ACCEPTED) | (model.manifest.task == "regression")
    errors: Array = np.where(counts, 1 - outcomes.correct, np.nan)
    return errors


def truths_of(manifest: Manifest, request: FeedbackRequest, count: int) -> Array:
    """What is true of `count` examples, (B, C) as `outcomes_of` takes it; raises `FieldError` for what does not fit."""
    task = manifest.task
    if task == "regression":
        values = _given(request, "values", "labels", task, "numbers", count)
        rows = [_row(value, manifest.outputs, index) for index, value in enumerate(values)]
        return np.array(rows, np.float64)
    several = task == "multilabel"
    labels = _given(request, "labels", "values", task, "lists of labels" if several else "class names", count)
    return _label_rows(labels, manifest.labels) if several else _classes(labels, manifest.labels)[:, np.newaxis]


def _given(request: FeedbackRequest, field: str, other: str, task: Task, what: str, count: int) -> list[Any]:
    """What the field holds, and the other one must not hold."""
    if getattr(request, other) is not None:
        raise FieldError(other, f"found some for a {task} model, expected {field} alone")
    given: list[Any] | None = getattr(request, field)
    if given is None:
        raise FieldError(field, f"found none, expected a list of {what}, one for each example of the answer")
    if len(given) != count:
        raise FieldError(field, f"found {len(given)}, expected {count}, one for each example; null is unknown")
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
