"""Baselines without any server: the graph in onnxruntime alone, and that of the plain network."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import threadpoolctl

from benchmarks.core.plain import open_session, plain_network
from benchmarks.serving.digits import Array, rows
from demur.service.bundle import MODEL

LARGEST = 64


class Session:
    """The graph, with the service's options: `callers` batches at the same time, by `threads` each."""

    preparation_counts = False

    def __init__(self, values: dict[str, Any]) -> None:
        self.callers: int = values["callers"]
        self.threads: int = values["threads"]
        threadpoolctl.threadpool_limits(self.threads)
        self.bundle, self.inputs = values["bundle"], rows(LARGEST)
        self.pool = ThreadPoolExecutor(self.callers)
        self.compute: Callable[[Array], Any]

    def prepare(self) -> None:
        session = open_session(Path(self.bundle) / MODEL, self.threads)
        self.compute = lambda inputs: session.run(None, {"inputs": inputs})

    def step(self, batch: int, batches: int) -> None:
        """So many batches for each of the callers."""

        def call(_: int) -> None:
            for _ in range(batches):
                self.compute(self.inputs[:batch])

        list(self.pool.map(call, range(self.callers)))


class Plain(Session):
    """The network without its variances, which no answer can do without."""

    def prepare(self) -> None:
        self.compute = plain_network(self.bundle, self.threads)
