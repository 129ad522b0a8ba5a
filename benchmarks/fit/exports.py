"""Files for the methods without torch: the exported graphs, a posterior factor and inputs."""

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.settings import Settings, Values
from benchmarks.fit.methods import Predict
from benchmarks.fit.workloads import Workload
from offline.export.graph import export_jacobian
from offline.network.model_copy import private_copy


def exported(settings: Settings, workload: Workload) -> Values:
    """The values that a method of `benchmarks.fit.onnx_methods` is built from; the export runs once per workload."""
    return settings.artefacts.get("benchmarks.fit.exports:write", {"workload": workload.as_json()})


def write(values: dict[str, Any]) -> dict[str, Any]:
    """Write inputs.npy, scale_tril.npy, model.onnx and forward.onnx into `values["folder"]`; the export's seconds."""
    folder = Path(values["folder"])
    eager = Predict(values)
    eager.prepare()
    np.save(folder / "inputs.npy", eager.inputs.numpy())
    np.save(folder / "scale_tril.npy", eager.scale_tril)
    start = time.perf_counter()
    model, opset = export_jacobian(eager.jacobian, eager.inputs, eager.outputs)
    seconds = time.perf_counter() - start
    (folder / "model.onnx").write_bytes(model)
    write_forward(eager, folder / "forward.onnx")
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
