"""This project's methods without torch: the exported graphs in onnxruntime, and `demur.service.maths.predictive`."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.maths.predictive import link_approx

Array = npt.NDArray[Any]
FITTED = 2


def open_session(graph: Path | bytes, threads: int) -> onnxruntime.InferenceSession:
    """A session for a file or its content, with the options that `demur.service.inference.predictor` gives its
    own."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class Predict:
    """Probabilities as a bundle's predictor computes them, from the graph that gives the variances.

    `benchmarks.fit.exports` wrote the graph, and the inputs beside it.
    """

    preparation_counts = False

    def __init__(self, values: dict[str, Any]) -> None:
        folder = Path(values["folder"])
        self.inputs = np.load(folder / "inputs.npy")
        self.session = open_session(folder / "model.onnx", values["threads"])

    def prepare(self) -> None:
        """Do nothing: the session is the model."""

    def needed_bytes(self, batch: int) -> int:
        return 0 * batch

    def predict(self, inputs: Array) -> tuple[Array, Array]:
        mean, variance = self.session.run(["mean", "variance"], {"inputs": inputs})
        return mean, variance

    def step(self, batch: int, batches: int) -> None:
        for _ in range(batches):
            mean, variance = self.predict(self.inputs[:batch])
            link_approx(mean, variance)

    def answer(self) -> Array:
        return self.predict(self.inputs[:FITTED])[1].ravel()
