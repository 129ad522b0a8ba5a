"""What serves as the measure: the exported graph in onnxruntime alone, and `Predictor.predict`, without any server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import threadpoolctl

from benchmarks.served import open_session
from benchmarks.serving.digits import Array, rows
from service.bundle import MODEL
from service.predictor import Predictor

LARGEST = 64


class Session:
    """The graph, with the service's options and number of threads."""

    preparation_counts = False

    def __init__(self, values: dict[str, Any]) -> None:
        threadpoolctl.threadpool_limits(values["threads"])
        self.values, self.inputs = values, rows(LARGEST)
        self.compute: Callable[[Array], Any]

    def prepare(self) -> None:
        session = open_session(Path(self.values["bundle"]) / MODEL, self.values["threads"])
        self.compute = lambda inputs: session.run(None, {"inputs": inputs})

    def step(self, batch: int, batches: int) -> None:
        for _ in range(batches):
            self.compute(self.inputs[:batch])


class Predict(Session):
    """Everything the service computes for an answer, but for HTTP."""

    def prepare(self) -> None:
        self.compute = Predictor.load(self.values["bundle"], threads=self.values["threads"]).predict
