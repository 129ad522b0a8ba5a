"""This project's methods in torch: the fit and the eager prediction."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch._dynamo  # torch imports it on first use of some calls: part of every memory baseline, of no peak
from torch import Tensor

from benchmarks.fit.workloads import Workload
from probity.offline.data.likelihood import Classification
from probity.offline.estimate.memory import plan_memory
from probity.offline.jacobian.jacobian import SubnetworkJacobian
from probity.offline.jacobian.plan import make_jacobian
from probity.offline.laplace.ggn import Curvature, accumulate_ggn
from probity.offline.laplace.posterior import factor, posterior_precision
from probity.offline.network.model_copy import private_copy
from probity.offline.network.weights import WeightLayout
from probity.offline.runtime.available_memory import default_budget
from probity.service.maths.predictive import functional_variance, link_approx

Array = npt.NDArray[Any]
CPU = torch.device("cpu")
FITTED = 2  # examples behind the posterior of a prediction race: its cost does not depend on them
PRIOR = 1.0


class SubnetworkMethod:
    """Common to this project's methods in torch."""

    preparation_counts = True
    rows: int | None = None

    def __init__(self, values: dict[str, Any]) -> None:
        torch.set_num_threads(values["threads"])
        self.workload = Workload.of(values["workload"])
        self.model = self.workload.model()
        self.inputs, self.targets = self.workload.data()
        self.outputs = self.workload.spec.outputs

    def prepare(self) -> None:
        self.jacobian = jacobian_of(self.workload, self.model, self.inputs)

    def needed_bytes(self, batch: int) -> int:
        """Little in comparison: only the baseline's estimate matters."""
        return 0 * batch

    def curvature(self, examples: int, batches: int = 1) -> Curvature:
        pairs = [(self.inputs[:examples], self.targets[:examples])] * batches
        return accumulate_ggn(self.jacobian, pairs, Classification(self.outputs), rows=self.rows)


class Fit(SubnetworkMethod):
    """The curvature as a fit sums it: batches cut into the chunks that the memory plan allows on this machine."""

    def prepare(self) -> None:
        super().prepare()
        plan = plan_memory(
            self.jacobian.model,
            self.jacobian.layout,
            self.jacobian.size,
            Classification(self.outputs),
            self.inputs[:2],
            default_budget(CPU),
            CPU,
            indices=self.jacobian.indices,
            matrix_steps={},
            verified=0,
        )
        self.rows = plan.rows("curvature")

    def step(self, batch: int, batches: int) -> None:
        self.curvature(batch, batches)

    def answer(self) -> Array:
        return np.asarray(self.curvature(FITTED).ggn.diagonal().numpy())


class Predict(SubnetworkMethod):
    """Probabilities from the eager Jacobian: what `probity.service.predictor` computes, with torch in place of
    onnxruntime."""

    preparation_counts = False

    def prepare(self) -> None:
        super().prepare()
        self.scale_tril = scale_tril_of(self.curvature(FITTED).ggn)

    def step(self, batch: int, batches: int) -> None:
        for _ in range(batches):
            mean, variance = self.predict(self.inputs[:batch])
            link_approx(mean, variance)

    def predict(self, inputs: Tensor) -> tuple[Array, Array]:
        mean, jacobian = self.jacobian(inputs)
        return mean.numpy(), functional_variance(jacobian.numpy(), self.scale_tril)

    def answer(self) -> Array:
        return self.predict(self.inputs[:FITTED])[1].ravel()


def jacobian_of(workload: Workload, model: torch.nn.Module, inputs: Tensor) -> SubnetworkJacobian:
    """The Jacobian of the workload's chosen weights."""
    layout = WeightLayout.of(model)
    return make_jacobian(private_copy(model, CPU), layout, workload.indices(layout), inputs[:2])


def scale_tril_of(ggn: Tensor) -> Array:
    """The factor of the covariance as a bundle holds it, float32."""
    return np.asarray(factor(posterior_precision(ggn, PRIOR))[0].float().numpy())
