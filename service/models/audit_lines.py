"""A prediction -> the lines of the audit trail: JSON objects, one for each example."""

from datetime import UTC, datetime
from typing import Any

import numpy.typing as npt
from pydantic_core import to_json

from probity.service.codec.answers import chosen_of, decisions
from probity.service.inference.deciding import Rule
from probity.service.inference.predictor import PlainPrediction, Prediction
from probity.service.models.served import AnyPrediction, ServedModel

Array = npt.NDArray[Any]
Json = dict[str, Any]
UNDECIDED: Json = dict.fromkeys(("score", "p_value", "threshold", "false_reject_rate", "rejected"))


def audit_lines(
    model: ServedModel,
    rule: Rule,
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
    answers = _answers(model, prediction)
    decided = decisions(prediction, rule) if isinstance(prediction, Prediction) else [UNDECIDED] * len(prediction)
    kept = [{}] * len(prediction) if inputs is None else [{"inputs": one.tolist()} for one in inputs]
    examples = zip(answers, decided, kept, strict=True)
    lines = [
        request | {"index": index} | answer | decision | own for index, (answer, decision, own) in enumerate(examples)
    ]
    return b"".join(to_json(line, inf_nan_mode="null") + b"\n" for line in lines)


def _answers(model: ServedModel, prediction: AnyPrediction) -> list[Json]:
    """The label and its probability, those of several labels, or the means."""
    probabilities = (
        prediction.map_probabilities if isinstance(prediction, PlainPrediction) else prediction.probabilities
    )
    if probabilities is None:
        return [{"mean": mean} for mean in prediction.mean.tolist()]
    chosen = chosen_of(probabilities, model.manifest)
    if model.manifest.task != "multilabel":
        return chosen
    return [own | {"probabilities": p} for own, p in zip(chosen, probabilities.tolist(), strict=True)]
