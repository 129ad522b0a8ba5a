"""A prediction -> the lines of the audit trail: JSON objects, one for each example."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from pydantic_core import to_json

from ..codec.answers import View, predictions_json
from ..format.manifest import Task
from ..inference.decision import Decision
from ..inference.predictor import Prediction
from ..models.served import ServedModel
from ..monitoring.audit import moment

Array = npt.NDArray[Any]
Json = dict[str, Any]
ANSWER: Mapping[Task, tuple[str, ...]] = {
    "classification": ("label", "probability"),
    "multilabel": ("labels", "probabilities"),
    "regression": ("mean",),
}
DECISION = ("score", "p_value", "threshold", "false_reject_rate", "rejected")


@dataclass(frozen=True)
class Asker:
    """Who asked: the address of the client, and the name of its API key, where one is demanded."""

    client: str | None = None
    key: str | None = None


NOBODY = Asker()


def audit_lines(
    model: ServedModel,
    decision: Decision,
    request_id: str,
    seconds: float,
    prediction: Prediction,
    inputs: Array | None = None,
    asker: Asker = NOBODY,
    trial: bool = False,
) -> bytes:
    """The lines of a request, each with its end.

    `decision` has decided; `seconds`: when the request was answered, since 1970; `inputs` (B, ...): as the network took
    them, where they are to be kept.
    """
    request: Json = {
        "time": moment(seconds),
        "process": os.getpid(),
        "id": request_id,
        "client": asker.client,
        "key": asker.key,
        "model": model.name,
        "version": model.version,
        "digest": model.digest,
    } | ({"trial": True} if trial else {})
    fields = (*ANSWER[model.manifest.task], *DECISION)
    answers = predictions_json(prediction, decision, View(fields, rounded=False))
    kept = [{}] * len(prediction) if inputs is None else [{"inputs": one.tolist()} for one in inputs]
    lines = [request | {"index": i} | answer | own for i, (answer, own) in enumerate(zip(answers, kept, strict=True))]
    return b"".join(to_json(line, inf_nan_mode="null") + b"\n" for line in lines)
