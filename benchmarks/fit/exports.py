"""Files for the prediction without torch: the exported graph and inputs."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fit.methods import FITTED, PRIOR, Fit
from demur.offline.export.graph import export_variance
from demur.offline.laplace.posterior import factor, posterior_precision
from demur.offline.laplace.served_factor import structured_factor
from demur.service.maths.posterior_factor import CholeskyPosterior


def write(values: dict[str, Any]) -> dict[str, Any]:
    """Write inputs.npy and model.onnx (mean and variance, as a bundle holds them) into `values["folder"]`."""
    fit = Fit(values)
    fit.prepare()
    scale_tril = factor(posterior_precision(fit.curvature(FITTED).ggn, PRIOR))[0].float().numpy()
    posterior = structured_factor(fit.jacobian, CholeskyPosterior(scale_tril), fit.outputs)
    model, _ = export_variance(fit.jacobian, fit.inputs, fit.outputs, posterior)
    folder = Path(values["folder"])
    np.save(folder / "inputs.npy", fit.inputs.numpy())
    (folder / "model.onnx").write_bytes(model)
    return {}
