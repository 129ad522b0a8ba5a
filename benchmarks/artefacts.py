"""What the contenders without torch need: the exported graphs, a posterior factor and inputs, as files."""

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.contenders import Predict
from benchmarks.harness import call
from benchmarks.workloads import Workload
from offline.export.graph import export_onnx
from offline.network.model_copy import private_copy


def make(values: dict[str, Any]) -> dict[str, Any]:
    """Write inputs.npy, scale_tril.npy, model.onnx and forward.onnx into `values["folder"]`; the export's seconds."""
    folder = Path(values["folder"])
    ours = Predict(values)
    ours.prepare()
    np.save(folder / "inputs.npy", ours.inputs.numpy())
    np.save(folder / "scale_tril.npy", ours.scale_tril)
    start = time.perf_counter()
    model, opset = export_onnx(ours.jacobian, ours.inputs, ours.outputs)
    seconds = time.perf_counter() - start
    (folder / "model.onnx").write_bytes(model)
    write_forward(ours, folder / "forward.onnx")
    return {"export_seconds": seconds, "opset": opset, "model_bytes": len(model)}


def write_forward(ours: Predict, path: Path) -> None:
    """The network's forward pass alone, exported the usual way."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it reports every optional operator that it skips
    program = torch.onnx.export(
        private_copy(ours.model, torch.device("cpu")),
        (ours.inputs[:3],),
        dynamo=True,
        input_names=["inputs"],
        output_names=["forward_output"],
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        verbose=False,
    )
    assert program is not None
    program.save(path)


class Shelf:
    """Artefacts of the workloads met in one run, each made once, in a process of its own."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads = folder, threads
        self.made: dict[Workload, dict[str, Any]] = {}

    def get(self, workload: Workload) -> dict[str, Any]:
        """The contenders' values: workload and folder; beside them what `make` measured."""
        if workload not in self.made:
            folder = self.folder / str(len(self.made))
            folder.mkdir(parents=True)
            values = {"workload": workload.as_json(), "folder": str(folder)}
            self.made[workload] = {**values, "export": call("benchmarks.artefacts:make", values, self.threads)}
        return self.made[workload]
