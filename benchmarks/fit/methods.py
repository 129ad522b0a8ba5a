"""This project's fit in torch."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch._dynamo  # torch imports it on first use of some calls: part of every memory baseline, of no peak

from benchmarks.fit.workloads import Workload
from demur.offline.data.likelihood import Classification
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import Curvature, accumulate_ggn, curvature_rows
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.available_memory import chunk_bytes, default_budget

Array = npt.NDArray[Any]
CPU = torch.device("cpu")
FITTED = 2  # examples behind the posterior of a comparison of predictions: their cost does not depend on them
PRIOR = 1.0


class Fit:
    """The curvature as a fit sums it: batches cut into the chunks that this machine's memory allows."""

    preparation_counts = True

    def __init__(self, values: dict[str, Any]) -> None:
        torch.set_num_threads(values["threads"])
        self.workload = Workload.of(values["workload"])
        self.model = self.workload.model()
        self.inputs, self.targets = self.workload.data()
        self.outputs = self.workload.spec.outputs

    def prepare(self) -> None:
        layout = WeightLayout.of(self.model)
        indices = self.workload.indices(layout)
        self.jacobian = make_jacobian(private_copy(self.model, CPU), layout, indices, self.inputs[:2])
        memory = chunk_bytes(self.jacobian.model, CPU, default_budget(CPU), self.jacobian.size)
        self.rows = curvature_rows(self.jacobian, Classification(self.outputs), self.inputs[:1], memory)

    def needed_bytes(self, batch: int) -> int:
        """Little in comparison: only the baseline's estimate matters."""
        return 0 * batch

    def curvature(self, examples: int, batches: int = 1) -> Curvature:
        pairs = [(self.inputs[:examples], self.targets[:examples])] * batches
        return accumulate_ggn(self.jacobian, pairs, Classification(self.outputs), rows=self.rows)

    def step(self, batch: int, batches: int) -> None:
        self.curvature(batch, batches)

    def answer(self) -> Array:
        return np.asarray(self.curvature(FITTED).ggn.diagonal().numpy())
