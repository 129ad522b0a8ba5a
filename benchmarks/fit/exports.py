"""Files for the methods without torch: the exported graphs and inputs."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.settings import Settings, Values
from benchmarks.fit.methods import Predict
from benchmarks.fit.workloads import Workload
from probity.offline.export.graph import export_variance
from probity.offline.laplace.served_factor import structured_factor
from probity.service.maths.posterior_factor import CholeskyPosterior


def served(settings: Settings, workload: Workload) -> Values:
    """The values that `benchmarks.fit.onnx_methods.Predict` is built from; the export runs once per workload."""
    return settings.artefacts.get("benchmarks.fit.exports:write", {"workload": workload.as_json()})


def write(values: dict[str, Any]) -> dict[str, Any]:
    """Write inputs.npy and model.onnx (mean and variance, as a bundle holds them) into `values["folder"]`."""
    eager = Predict(values)
    eager.prepare()
    factor = structured_factor(eager.jacobian, CholeskyPosterior(eager.scale_tril), eager.outputs)
    model, opset = export_variance(eager.jacobian, eager.inputs, eager.outputs, factor)
    folder = Path(values["folder"])
    np.save(folder / "inputs.npy", eager.inputs.numpy())
    (folder / "model.onnx").write_bytes(model)
    return {"opset": opset, "model_bytes": len(model)}
