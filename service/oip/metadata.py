"""A model's metadata in the protocol, and its configuration and statistics as in Triton."""

from collections.abc import Callable
from typing import Any

from probity.service.bundle import InputSpec
from probity.service.codec.answers import Coverage
from probity.service.format.manifest_input import InputPart
from probity.service.inference.predictor import Predictor
from probity.service.oip.outputs import FP32, outputs_of
from probity.service.oip.schemas import INPUT

Json = dict[str, Any]
PLATFORM, BACKEND = "onnxruntime_onnx", "onnxruntime"
DATATYPES = {"float32": FP32, "int64": "INT64", "bool": "BOOL"}
ANY_NUMBER = -1
NANOSECONDS = 1e9


def metadata(predictor: Predictor, versions: list[str], coverage: Coverage) -> Json:
    """The model's inputs and outputs, with a batch of any size; and the level of its sets or intervals."""
    manifest = predictor.manifest
    outputs = [
        {"name": output.name, "datatype": output.datatype, "shape": [ANY_NUMBER, *output.shape]}
        for output in outputs_of(predictor).values()
    ]
    return {
        "name": manifest.name,
        "versions": versions,
        "platform": PLATFORM,
        "inputs": [
            {"name": part.name, "datatype": DATATYPES[part.dtype], "shape": [ANY_NUMBER, *part.shape]}
            for part in _inputs(manifest.input)
        ],
        "outputs": outputs,
        "parameters": {"digest": predictor.digest, "task": manifest.task, **_levels(predictor, coverage)},
    }


def _inputs(spec: InputSpec) -> tuple[InputPart, ...]:
    return spec.parts or (InputPart(INPUT, spec.shape, spec.dtype),)


def _levels(predictor: Predictor, coverage: Coverage) -> Json:
    if predictor.manifest.task == "regression":
        return {"interval_level": coverage.level, "intervals": coverage.kind(predictor)}
    return {"interval_level": coverage.level}


def configuration(predictor: Predictor, max_rows: int, max_queue_delay_seconds: float) -> Json:
    """Triton's configuration: shapes are without the batch, whose largest size is stated."""
    manifest = predictor.manifest
    outputs = [
        {"name": output.name, "data_type": f"TYPE_{output.datatype}", "dims": list(output.shape)}
        for output in outputs_of(predictor).values()
    ]
    return {
        "name": manifest.name,
        "platform": PLATFORM,
        "backend": BACKEND,
        "max_batch_size": max_rows,
        "input": [
            {"name": part.name, "data_type": f"TYPE_{DATATYPES[part.dtype]}", "dims": list(part.shape)}
            for part in _inputs(manifest.input)
        ],
        "output": outputs,
        "dynamic_batching": {"max_queue_delay_microseconds": round(max_queue_delay_seconds * 1e6)},
    }


def statistics(name: str, version: str, sample: Callable[[str, dict[str, str]], float | None]) -> Json:
    """Counts since the start. `sample` gives the value of a metric; times not measured per model are left out."""
    labels = {"model": name, "version": version}

    def value(metric: str) -> float:
        return sample(f"probity_{metric}", labels) or 0.0

    def duration(metric: str) -> Json:
        return {"count": int(value(f"{metric}_count")), "ns": round(value(f"{metric}_sum") * NANOSECONDS)}

    return {
        "name": name,
        "version": version,
        "inference_count": int(value("batch_rows_sum")),
        "execution_count": int(value("batch_rows_count")),
        "inference_stats": {
            "success": {"count": int(value("queue_seconds_count"))},
            "queue": duration("queue_seconds"),
            "compute_infer": duration("compute_seconds"),
        },
    }
