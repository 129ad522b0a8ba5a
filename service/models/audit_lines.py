"""A prediction -> the lines of the audit trail: JSON objects, one for each example."""

from datetime import UTC, datetime
from typing import Any

import numpy.typing as npt
from pydantic_core import to_json

from service.codec.answers import class_names
from service.inference.predictor import PlainPrediction, Prediction
from service.maths.rejection import RejectionRule
from service.models.served import AnyPrediction, ServedModel

Array = npt.NDArray[Any]
Json = dict[str, Any]


def audit_lines(
    model: ServedModel,
    rule: RejectionRule,
    request_id: str,
    seconds: float,
    prediction: AnyPrediction,
    inputs: Array | None = None,
) -> bytes:
    """The lines of a request, each with its end.

    `rule` has decided; `seconds`: when the request was answered, since 1970; `inputs` (B, ...): as the network took
    them, where they are to be kept. The plain network's answers have no score and no decision.
    """
    request: Json = {
        "time": datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds"),
        "id": request_id,
        "model": model.name,
        "version": model.version,
        "digest": model.digest,
        "degraded": isinstance(prediction, PlainPrediction),
    }
    answers, decisions = _answers(model, prediction), _decisions(rule, prediction)
    kept = [{}] * len(prediction) if inputs is None else [{"inputs": one.tolist()} for one in inputs]
    examples = zip(answers, decisions, kept, strict=True)
    lines = [
        request | {"index": index} | answer | decision | own for index, (answer, decision, own) in enumerate(examples)
    ]
    return b"".join(to_json(line, inf_nan_mode="null") + b"\n" for line in lines)


def _answers(model: ServedModel, prediction: AnyPrediction) -> list[Json]:
    """The label and its probability, or the means."""
    probabilities = (
        prediction.map_probabilities if isinstance(prediction, PlainPrediction) else prediction.probabilities
    )
    if probabilities is None:
        return [{"mean": mean} for mean in prediction.mean.tolist()]
    names, labels = class_names(model.manifest), probabilities.argmax(axis=1).tolist()
    return [{"label": names[label], "probability": float(probabilities[i, label])} for i, label in enumerate(labels)]


def _decisions(rule: RejectionRule, prediction: AnyPrediction) -> list[Json]:
    if not isinstance(prediction, Prediction):
        return [dict.fromkeys(("score", "p_value", "threshold", "rejected"))] * len(prediction)
    rows = zip(prediction.score.tolist(), prediction.p_value.tolist(), prediction.rejected.tolist(), strict=True)
    threshold = rule.threshold
    return [
        {"score": score, "p_value": p_value, "threshold": threshold, "rejected": rejected}
        for score, p_value, rejected in rows
    ]
