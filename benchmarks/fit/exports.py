"""Files for the methods without torch: the exported graphs and inputs."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.settings import Settings, Values
from benchmarks.fit.methods import Predict
from benchmarks.fit.workloads import Workload
from probity.offline.export.graph import export_jacobian, export_variance
from probity.offline.laplace.served_factor import structured_factor
from probity.offline.network.model_copy import private_copy
from probity.service.maths.posterior_factor import CholeskyPosterior


def exported(settings: Settings, workload: Workload) -> Values:
    """The values that a method of `benchmarks.fit.onnx_methods` is built from; the export runs once per workload."""
    return settings.artefacts.get("benchmarks.fit.exports:write", {"workload": workload.as_json()})


def served(settings: Settings, workload: Workload) -> Values:
    """As `exported`, with the variances in the graph, as a bundle holds it."""
    return settings.artefacts.get("benchmarks.fit.exports:write_served", {"workload": workload.as_json()})


def write(values: dict[str, Any]) -> dict[str, Any]:
    """Write inputs.npy, model.onnx (mean and Jacobian) and forward.onnx into `values["folder"]`; the export's
    seconds."""
    eager = Predict(values)
    eager.prepare()
    made = _write(values, eager, lambda: export_jacobian(eager.jacobian, eager.inputs, eager.outputs))
    write_forward(eager, Path(values["folder"]) / "forward.onnx")
    return made


def write_served(values: dict[str, Any]) -> dict[str, Any]:
    """Write inputs.npy and model.onnx (mean and variance) into `values["folder"]`; the export's seconds."""
    eager = Predict(values)
    eager.prepare()
    factor = structured_factor(eager.jacobian, CholeskyPosterior(eager.scale_tril), eager.outputs)
    return _write(values, eager, lambda: export_variance(eager.jacobian, eager.inputs, eager.outputs, factor))


def _write(values: dict[str, Any], eager: Predict, export: Callable[[], tuple[bytes, int]]) -> dict[str, Any]:
    folder = Path(values["folder"])
    np.save(folder / "inputs.npy", eager.inputs.numpy())
    start = time.perf_counter()
    model, opset = export()
    seconds = time.perf_counter() - start
    (folder / "model.onnx").write_bytes(model)
    return {"export_seconds": seconds, "opset": opset, "model_bytes": len(model)}


def write_forward(eager: Predict, path: Path) -> None:
    """Export the network's forward pass alone, the usual way."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it reports every optional operator that it skips
    program = torch.onnx.export(
        private_copy(eager.model, torch.device("cpu")),
        (eager.inputs[:3],),
        dynamo=True,
        input_names=["inputs"],
        output_names=["forward_output"],
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        verbose=False,
    )
    assert program is not None
    program.save(path)
