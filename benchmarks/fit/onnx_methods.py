"""This project's methods without torch: the exported graphs in onnxruntime, and `demur.service.maths.predictive`."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.core.plain import open_session
from demur.service.maths.predictive import link_approx

Array = npt.NDArray[Any]
FITTED = 2


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
