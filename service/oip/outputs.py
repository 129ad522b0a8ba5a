"""The output tensors of a model: their names, datatypes and shapes, and their values in a prediction."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..format.manifest import Manifest
from ..inference.decision import Decision
from ..inference.predictor import Prediction
from .datatypes import BOOL, Array
from .errors import RequestError
from .parsing import shown
from .request import InferRequest, Wanted

FP32, FP64 = "FP32", "FP64"
SET, LOW, HIGH = "prediction_set", "interval_low", "interval_high"


@dataclass(frozen=True)
class Output:
    """`shape` without the batch; `by_default`: whether a request that names no outputs gets it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    by_default: bool = True


@dataclass(frozen=True)
class Answer:
    """A prediction, and what its sets or intervals are computed by."""

    prediction: Prediction
    decision: Decision

    def value(self, name: str) -> Array:
        """An output's values, (B, ...)."""
        if name == SET:
            return self.decision.members(self.prediction)
        if name in (LOW, HIGH):
            return self._ends[name]
        value: Array = getattr(self.prediction, name)
        return value

    @functools.cached_property
    def _ends(self) -> Mapping[str, Array]:
        """Both ends of the intervals, (B, K) each: whoever asks for one asks for the other."""
        return dict(zip((LOW, HIGH), self.decision.intervals(self.prediction), strict=True))


def outputs_of(manifest: Manifest) -> Mapping[str, Output]:
    """The outputs of a model, in the order in which they are sent."""
    added, noise = manifest.added_weights is not None, manifest.input_noise is not None
    return _outputs(manifest.task, manifest.outputs, added, noise)


@functools.lru_cache(maxsize=64)
def _outputs(task: str, count: int, added: bool, noise: bool) -> Mapping[str, Output]:
    wide = (count,)
    per_output = ["mean", "variance"]
    if task != "regression":
        per_output = ["probabilities", "map_probabilities", *per_output]
    found = [Output(name, FP32, wide) for name in per_output]
    if added:
        found.append(Output("added_variance", FP32, ()))
    if noise:
        found.append(Output("noise_scale", FP32, wide))
    found += [Output("score", FP32, ()), Output("p_value", FP32, ()), Output("rejected", BOOL, ())]
    if task != "regression":
        members = (count, 2) if task == "multilabel" else wide
        found.append(Output(SET, BOOL, members, by_default=False))
    else:
        found += [Output(name, FP64, wide, by_default=False) for name in (LOW, HIGH)]
    return MappingProxyType({output.name: output for output in found})


def check_outputs(request: InferRequest, known: Mapping[str, Output]) -> None:
    """Refuse unknown outputs before anything is computed."""
    for wanted in request.outputs or ():
        if wanted.name not in known:
            raise RequestError(wanted.place, shown(wanted.name), f"one of {', '.join(known)}")


def chosen(request: InferRequest, known: Mapping[str, Output], answer: Answer) -> list[tuple[Wanted, Array]]:
    """The requested outputs, or those given by default. Sets and intervals are computed only where they are asked
    for."""
    usual = (Wanted(name, request.binary, name) for name, output in known.items() if output.by_default)
    return [(wanted, answer.value(wanted.name)) for wanted in (usual if request.outputs is None else request.outputs)]
