"""Predictions -> rows: as JSON objects, with the service's own numbers, and as the columns of a table."""

from typing import Any

from probity.scoring.inputs import Batch
from probity.service.bundle import Manifest
from probity.service.codec.answers import Coverage, class_names, predictions_json
from probity.service.inference.predictor import Predictor, check_finite

Row = dict[str, Any]
DECISION = ("score", "p_value", "rejected")


def scored(predictor: Predictor, batch: Batch, first: int, coverage: Coverage) -> list[Row]:
    """One JSON object for each input; `first`: the number of the first one. Raises `NonFinitePrediction`."""
    prediction = predictor.predict(batch.inputs)
    check_finite(prediction)
    answers = predictions_json(prediction, predictor, predictor.decides, coverage)
    names = batch.names or [None] * len(answers)
    return [
        ({"row": first + i} | ({} if name is None else {"file": name}) | _row(answer))
        for i, (answer, name) in enumerate(zip(answers, names, strict=True))
    ]


def _row(answer: Row) -> Row:
    decision = {name: answer["ood"][name] for name in DECISION}
    if "mean" in answer:
        interval = {"low": answer["interval"]["low"], "high": answer["interval"]["high"]}
        return {"mean": answer["mean"], "std": answer["std"]} | interval | decision
    labels = None if answer["prediction_set"] is None else answer["prediction_set"]["labels"]
    named = {name: answer[name] for name in ("label", "probability", "probabilities")}
    return named | decision | {"prediction_set": labels}


def flat(row: Row) -> Row:
    """The row as columns: one for each class or output."""
    found: Row = {}
    for name, value in row.items():
        if name == "probabilities":
            found |= {f"probability_{label}": p for label, p in value.items()}
        elif name in {"mean", "std", "low", "high"}:
            found |= {name if len(value) == 1 else f"{name}_{k}": number for k, number in enumerate(value)}
        else:
            found[name] = value
    return found


def columns(manifest: Manifest, with_files: bool) -> dict[str, type]:
    """The columns of a table and what they hold, in the order of `flat`."""
    start: dict[str, type] = {"row": int} | ({"file": str} if with_files else {})
    decision: dict[str, type] = {"score": float, "p_value": float, "rejected": bool}
    if manifest.task == "regression":
        numbers = list(range(manifest.outputs))
        blank = {name: [0.0 for _ in numbers] for name in ("mean", "std", "low", "high")}
        return start | dict.fromkeys(flat(blank), float) | decision
    each = {f"probability_{name}": float for name in class_names(manifest)}
    return start | {"label": str, "probability": float} | each | decision | {"prediction_set": list}
