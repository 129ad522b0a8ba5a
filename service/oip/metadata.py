"""A model's metadata in the protocol."""

from typing import Any

from ..bundle import InputSpec
from ..format.manifest_input import InputPart
from ..inference.decision import Decision
from ..inference.predictor import Predictor
from .datatypes import BYTES
from .outputs import FP32, outputs_of
from .schemas import INPUT

Json = dict[str, Any]
PLATFORM = "onnxruntime_onnx"
DATATYPES = {"float32": FP32, "int64": "INT64", "bool": "BOOL"}
ANY_NUMBER = -1


def metadata(predictor: Predictor, versions: list[str]) -> Json:
    """The model's inputs and outputs, with a batch of any size; and the level of its sets or intervals."""
    manifest = predictor.manifest
    outputs = [
        {"name": output.name, "datatype": output.datatype, "shape": [ANY_NUMBER, *output.shape]}
        for output in outputs_of(manifest).values()
    ]
    return {
        "name": manifest.name,
        "versions": versions,
        "platform": PLATFORM,
        "inputs": [
            {"name": part.name, "datatype": DATATYPES[part.dtype], "shape": [ANY_NUMBER, *part.shape]}
            for part in _inputs(manifest.input)
        ]
        if manifest.input.text is None
        else [{"name": INPUT, "datatype": BYTES, "shape": [ANY_NUMBER]}],
        "outputs": outputs,
        "parameters": {"digest": predictor.digest, "task": manifest.task, **_levels(predictor.decision)},
    }


def _inputs(spec: InputSpec) -> tuple[InputPart, ...]:
    return spec.parts or (InputPart(INPUT, spec.shape, spec.dtype),)


def _levels(decision: Decision) -> Json:
    level: Json = {"interval_level": decision.policy.interval_level}
    return level | ({"intervals": decision.interval_kind} if decision.manifest.task == "regression" else {})
