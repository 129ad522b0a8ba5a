"""Predictions -> rows: as JSON objects, with the service's own numbers, and as the columns of a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from demur.service.bundle import Manifest
from demur.service.codec.answers import View, predictions_json
from demur.service.format.manifest import Task
from demur.service.inference.predictor import Predictor, check_finite

from .inputs import Batch
from .out_of_range import OutOfRange

Row = dict[str, Any]
SURE = ("present", "absent", "undecided")
DECISION = ("score", "p_value", "rejected")
ANSWER: Mapping[Task, tuple[str, ...]] = {
    "classification": ("label", "probability", "probabilities", "variance", *DECISION, "prediction_set"),
    "multilabel": ("labels", "probabilities", "variance", *DECISION, "prediction_set"),
    "regression": ("mean", "std", "interval", "variance", *DECISION),
}
EACH = ("mean", "std", "low", "high", "variance")  # of a regression: one for each output
RESERVED = {"row", "file", "label", "probability", "probabilities", "prediction_set", *EACH}


def scored(predictor: Predictor, batch: Batch, first: int, strange: OutOfRange) -> list[Row]:
    """One JSON object for each input; `first`: the number of the first one; `strange` counts those that are out of
    range. Raises `NonFinitePrediction`."""
    prediction = predictor.predict(batch.inputs)
    check_finite(prediction, first)
    strange.note(batch, first, prediction.out_of_range)
    view = View(ANSWER[predictor.manifest.task], rounded=False)
    answers = predictions_json(prediction, predictor.decision, view)
    names = batch.names or [None] * len(answers)
    kept = {kept_name(column, predictor.manifest): cells for column, cells in batch.kept.items()}
    return [
        {"row": first + i}
        | ({} if name is None else {"file": name})
        | {column: cells[i] for column, cells in kept.items()}
        | _row(answer)
        for i, (answer, name) in enumerate(zip(answers, names, strict=True))
    ]


def _row(answer: Row) -> Row:
    """Without levels and kinds, which are the same for all."""
    if "interval" in answer:
        ends = answer.pop("interval")
        named = {name: answer.pop(name) for name in ("mean", "std")}
        return named | {"low": ends["low"], "high": ends["high"]} | answer
    sets = answer.pop("prediction_set")
    if "labels" in answer:
        return answer | {name: None if sets is None else sets[name] for name in SURE}
    return answer | {"prediction_set": None if sets is None else sets["labels"]}


def flat(row: Row, names: Sequence[str]) -> Row:
    """The row as columns: one for each class or output; names: of the outputs."""
    found: Row = {}
    for name, value in row.items():
        if name == "probabilities":
            found |= {f"probability_{label}": p for label, p in value.items()}
        elif name in EACH and isinstance(value, list):  # the variance of a classification is one number
            each = zip(names, value, strict=True)
            found |= {name if len(value) == 1 else f"{name}_{title}": number for title, number in each}
        else:
            found[name] = value
    return found


def kept_name(name: str, manifest: Manifest) -> str:
    """What a column of the inputs is called beside the predictions: `input_...` where these have one of its name."""
    return f"input_{name}" if name in RESERVED or name in columns(manifest, with_files=True) else name


def columns(manifest: Manifest, with_files: bool, kept: Mapping[str, type] | None = None) -> dict[str, type]:
    """The columns of a table and what they hold, in the order of `flat`; kept: those of the inputs' table."""
    start: dict[str, type] = {"row": int} | ({"file": str} if with_files else {})
    start |= {kept_name(name, manifest): kind for name, kind in (kept or {}).items()}
    decision: dict[str, type] = {"score": float, "p_value": float, "rejected": bool}
    if manifest.task == "regression":
        blank = {name: [0.0] * manifest.outputs for name in EACH}
        return start | dict.fromkeys(flat(blank, manifest.labels), float) | decision
    each = {f"probability_{name}": float for name in manifest.labels} | {"variance": float}
    if manifest.task == "multilabel":
        return start | {"labels": list} | each | decision | dict.fromkeys(SURE, list)
    return start | {"label": str, "probability": float} | each | decision | {"prediction_set": list}
