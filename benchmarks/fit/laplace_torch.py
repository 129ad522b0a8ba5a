"""The baseline: laplace-torch with a full covariance over the same subnetwork, through its public calls."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from laplace import Laplace
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.fit.methods import FITTED, PRIOR
from benchmarks.fit.workloads import Workload
from demur.offline.network.weights import WeightLayout

Array = npt.NDArray[Any]
COPIES = 2  # of the Jacobian in all weights: tensor by tensor, then joined


class LaplaceTorch:
    """Common to both methods."""

    preparation_counts = True

    def __init__(self, values: dict[str, Any]) -> None:
        torch.set_num_threads(values["threads"])
        self.workload = Workload.of(values["workload"])
        self.model = self.workload.model()
        self.inputs, self.targets = self.workload.data()

    def prepare(self) -> None:
        self.layout = WeightLayout.of(self.model)
        self.laplace: Any = Laplace(
            self.model,
            "classification",
            subset_of_weights="subnetwork",
            hessian_structure="full",
            subnetwork_indices=self.workload.indices(self.layout),
            prior_precision=PRIOR,
        )

    def needed_bytes(self, batch: int) -> int:
        """float32 Jacobians (batch, outputs, D), the largest of its tensors."""
        return COPIES * 4 * batch * self.workload.spec.outputs * sum(p.numel() for p in self.model.parameters())

    def fit(self, batch: int, batches: int) -> None:
        """One pass over batch * batches examples, the pool's again and again."""
        rows = torch.arange(batch * batches) % len(self.inputs)
        self.laplace.fit(DataLoader(TensorDataset(self.inputs[rows], self.targets[rows]), batch_size=batch))


class Fit(LaplaceTorch):
    """`Laplace.fit`."""

    def step(self, batch: int, batches: int) -> None:
        self.fit(batch, batches)

    def answer(self) -> Array:
        self.fit(1, FITTED)
        return np.asarray(self.laplace.H.detach().diagonal().numpy())


class Predict(LaplaceTorch):
    """The call of the fitted object, with the probit link."""

    preparation_counts = False

    def prepare(self) -> None:
        super().prepare()
        self.fit(1, FITTED)
        self.step(1, 1)  # its posterior scale is computed on first use

    def step(self, batch: int, batches: int) -> None:
        for _ in range(batches):
            self.laplace(self.inputs[:batch], pred_type="glm", link_approx="probit")

    def answer(self) -> Array:
        _, covariance = self.laplace._glm_predictive_distribution(self.inputs[:FITTED])  # noqa: SLF001  variances alone
        return np.asarray(covariance.diagonal(dim1=1, dim2=2).numpy()).ravel()
