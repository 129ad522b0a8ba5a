"""The output tensors of a model: their names, datatypes and shapes, and their values in a prediction."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from service.bundle import Manifest
from service.inference.predictor import PlainPrediction, Prediction
from service.oip.datatypes import BOOL, Array
from service.oip.errors import OutputUnavailable, RequestError
from service.oip.parsing import shown
from service.oip.request import InferRequest, Wanted

AnyPrediction = Prediction | PlainPrediction
FP32 = "FP32"


@dataclass(frozen=True)
class Output:
    """`shape` without the batch."""

    name: str
    datatype: str
    shape: tuple[int, ...]


def outputs_of(manifest: Manifest) -> Mapping[str, Output]:
    """The outputs of a model, in the order in which they are sent."""
    return _outputs(manifest.task, manifest.outputs)


@functools.lru_cache(maxsize=64)
def _outputs(task: str, count: int) -> Mapping[str, Output]:
    wide = (count,)
    per_output = ["mean", "variance"]
    if task == "classification":
        per_output = ["probabilities", "map_probabilities", *per_output]
    found = [Output(name, FP32, wide) for name in per_output]
    found += [Output("score", FP32, ()), Output("p_value", FP32, ()), Output("rejected", BOOL, ())]
    return MappingProxyType({output.name: output for output in found})


def check_outputs(request: InferRequest, known: Mapping[str, Output]) -> None:
    """Refuse unknown outputs before anything is computed."""
    for wanted in request.outputs or ():
        if wanted.name not in known:
            raise RequestError(wanted.place, shown(wanted.name), f"one of {', '.join(known)}")


def chosen(request: InferRequest, known: Mapping[str, Output], prediction: AnyPrediction) -> list[tuple[Wanted, Array]]:
    """The requested outputs, or all; raises `OutputUnavailable` where a degraded answer lacks one."""
    values = {name: value for name in known if (value := _value(prediction, name)) is not None}
    if request.outputs is None:
        return [(Wanted(name, request.binary, name), value) for name, value in values.items()]
    missing = [wanted.name for wanted in request.outputs if wanted.name not in values]
    if missing:
        raise OutputUnavailable(missing, list(values))
    return [(wanted, values[wanted.name]) for wanted in request.outputs]


def _value(prediction: AnyPrediction, name: str) -> Array | None:
    """The output's values; in a degraded answer, `probabilities` are the plain network's."""
    if name == "probabilities" and isinstance(prediction, PlainPrediction):
        name = "map_probabilities"
    value: Array | None = getattr(prediction, name, None)
    return value
