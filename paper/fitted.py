"""Small regressions, and a trained network with the Jacobian and the curvature of all its weights, in float64."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from probity.offline.config import FitConfig
from probity.offline.data.likelihood import Regression
from probity.offline.jacobian.plan import make_jacobian
from probity.offline.job import prepare
from probity.offline.network.model_copy import private_copy
from probity.offline.network.weights import WeightLayout
from probity.offline.runtime.distributed import DistributedContext
from probity.offline.runtime.progress import silent
from probity.offline.selection.context import SelectionContext

Array = npt.NDArray[Any]
BATCH = 128
MEMORY = 4 * 2**30


@dataclass(frozen=True)
class Problem:
    """Standardised training data x (N, F), y (N, 1), and named inputs (n, F) on which predictives are compared."""

    name: str
    x: Array
    y: Array
    points: dict[str, Array]


def standardising(train: Array) -> Callable[[Array], Array]:
    """What takes away the mean of these rows and divides by their standard deviation, column by column."""
    mean, std = train.mean(0), train.std(0)
    return lambda values: (values - mean) / np.where(std > 0, std, 1.0)


@dataclass(frozen=True)
class Fitted:
    """A trained network with its full Laplace posterior: jacobian (N, D), H (D, D), weights (D,), float64."""

    model: nn.Module
    problem: Problem
    seed: int

    @cached_property
    def exact(self) -> nn.Module:
        return private_copy(self.model, torch.device("cpu"), torch.float64)

    @cached_property
    def layout(self) -> WeightLayout:
        return WeightLayout.of(self.model)

    @property
    def total(self) -> int:
        return self.layout.total

    def jacobian(self, x: "np.ndarray[tuple[int, ...], np.dtype[np.float64]] | Tensor") -> Tensor:
        """(n, D) float64."""
        inputs = torch.as_tensor(x, dtype=torch.float64)
        function = make_jacobian(self.exact, self.layout, torch.arange(self.total), inputs[:2])
        return torch.cat([function(part)[1][:, 0] for part in torch.split(inputs, 500)])

    @cached_property
    def sigma_noise(self) -> float:
        with torch.no_grad():
            residual = self.exact(torch.as_tensor(self.problem.x)) - torch.as_tensor(self.problem.y)
        return float(residual.square().mean().sqrt())

    @cached_property
    def training(self) -> Tensor:
        return self.jacobian(self.problem.x)

    @cached_property
    def ggn(self) -> Tensor:
        """H, without prior, with 1 / sigma^2."""
        ggn: Tensor = self.training.T @ self.training
        return ggn.div_(self.sigma_noise**2)

    @cached_property
    def prior_precision(self) -> float:
        """lambda of the full network."""
        raise NotImplementedError

    @cached_property
    def context(self) -> SelectionContext:
        x, y = (torch.as_tensor(a, dtype=torch.float32) for a in (self.problem.x, self.problem.y))
        batches = list(zip(torch.split(x, BATCH), torch.split(y, BATCH), strict=True))
        config = FitConfig(
            likelihood="regression", subnetwork_size=1, seed=self.seed, prior_precision=self.prior_precision
        )
        job = prepare(self.model, batches, config, torch.device("cpu"), DistributedContext(), silent)
        job = replace(job, likelihood=Regression(1, self.sigma_noise))
        return SelectionContext(job, 1, torch.arange(self.total), MEMORY)
