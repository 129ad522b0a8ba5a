"""The output tensors of a model: their names, datatypes and shapes, and their values in a prediction."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..format.manifest import Manifest
from ..inference.decision import Decision
from ..inference.predictor import PlainPrediction, Prediction
from .datatypes import BOOL, Array
from .errors import OutputUnavailable, RequestError
from .parsing import shown
from .request import InferRequest, Wanted

AnyPrediction = Prediction | PlainPrediction
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

    prediction: AnyPrediction
    decision: Decision

    def value(self, name: str) -> Array | None:
        """An output's values, (B, ...); None where a degraded answer lacks it. Its `probabilities` are the plain
        network's."""
        prediction = self.prediction
        if isinstance(prediction, Prediction):
            if name == SET:
                return self.decision.members(prediction)
            if name in (LOW, HIGH):
                return self._ends[name]
        elif name == "probabilities":
            name = "map_probabilities"
        value: Array | None = getattr(prediction, name, None)
        return value

    @functools.cached_property
    def _ends(self) -> Mapping[str, Array]:
        """Both ends of the intervals, (B, K) each: whoever asks for one asks for the other."""
        assert isinstance(self.prediction, Prediction)
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
    """The requested outputs, or those given by default; raises `OutputUnavailable` where a degraded answer lacks one.

    Sets and intervals are computed only where they are asked for.
    """
    asked = {wanted.name for wanted in request.outputs or ()}
    names = [name for name, output in known.items() if output.by_default or name in asked]
    values = {name: value for name in names if (value := answer.value(name)) is not None}
    if request.outputs is None:
        return [(Wanted(name, request.binary, name), value) for name, value in values.items()]
    missing = [wanted.name for wanted in request.outputs if wanted.name not in values]
    if missing:
        raise OutputUnavailable(missing, list(values))
    return [(wanted, values[wanted.name]) for wanted in request.outputs]
