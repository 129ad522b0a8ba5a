"""Diagonal Laplace over all weights, Sigma = diag(1 / (h + lambda)): sampled, as in the paper, and linearised."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.experiments.frontier.methods import Method
from demur.offline.config import FitConfig
from demur.offline.data.given import Given
from demur.offline.data.likelihood import Classification, class_log_likelihood
from demur.offline.job import Job, prepare
from demur.offline.laplace.prior import grid_log_likelihood
from demur.offline.runtime.distributed import DistributedContext
from demur.offline.runtime.progress import silent
from demur.offline.selection.context import SelectionContext
from demur.offline.selection.streaming import curvature_diagonal
from demur.service.maths.predictive import link_approx
from paper.images.baselines.point import state_bytes
from paper.images.baselines.weight_samples import (
    SAMPLES,
    averaged,
    gaussian_samples,
    parameters_of,
)
from paper.images.problems import batches

Array = npt.NDArray[np.float64]
Examples = tuple[Tensor, Tensor]
GRID = np.logspace(-4, 6, 101)  # ten a decade, as in our own sweep
COARSE = np.logspace(0, 6, 7)
FINER = np.delete(np.logspace(-0.75, 0.75, 7), 3)  # about the best of these, as in the paper
SAMPLED_FOR = 250  # held-out examples by which the sampled form chooses lambda; the linearised one takes all
SETTINGS = {"grids": [len(GRID), len(COARSE), len(FINER)], "judged": SAMPLED_FOR}
ROWS, MEMORY = 16, 512 * 2**20


@dataclass(frozen=True)
class DiagonalLaplace:
    """h (D,) = sum_n diag(J_n^T Lambda_n J_n), over all weights of a trained network."""

    model: nn.Module
    train: Examples
    held_out: Examples
    seed: int

    @cached_property
    def job(self) -> Job:
        config = FitConfig(subnetwork_size=1, seed=self.seed, prior_precision=1.0)
        data = list(batches(self.train, ROWS))
        return prepare(self.model, Given("train_loader", data), config, self.device, DistributedContext(), silent)

    @property
    def device(self) -> torch.device:
        """That of the network."""
        return next(self.model.parameters()).device

    @cached_property
    def curvature(self) -> Tensor:
        """h."""
        everything = torch.arange(self.job.layout.total)
        return curvature_diagonal(SelectionContext(self.job, 1, everything, MEMORY), everything)

    def variances(self, precisions: Array) -> Callable[[Tensor], tuple[Array, Array]]:
        """Inputs -> outputs (n, K), and their variances (n, K, G): sum_d J_kd^2 / (h_d + lambda)."""
        inverse = (1 / (self.curvature[:, None] + torch.as_tensor(precisions))).to(self.device, torch.float32)
        jacobian = self.job.jacobian(torch.arange(self.job.layout.total))

        def predict(x: Tensor) -> tuple[Array, Array]:
            means, variances = [], []
            for part in torch.split(x, ROWS):
                mean, j = jacobian(part.to(self.device))
                means.append(mean.detach().double().cpu())
                variances.append((j.square() @ inverse).double().cpu())
            return torch.cat(means).numpy(), torch.cat(variances).numpy()

        return predict

    @cached_property
    def sweep(self) -> Array:
        """Mean held-out log-likelihood of the linearised form for each lambda of `GRID`."""
        inputs, classes = self.held_out
        mean, variance = self.variances(GRID)(inputs)
        scores: Array = grid_log_likelihood(mean, variance, classes.numpy(), Classification(mean.shape[1])).mean(1)
        return scores

    def linearised(self, budget: float) -> Method:
        """The probit approximation with the least lambda that costs at most `budget` nats; 0: with the best lambda."""
        used = float(GRID[self.sweep >= self.sweep.max() - budget].min())
        predict = self.variances(np.array([used]))

        def probabilities(x: Tensor) -> Array:
            outputs, spread = predict(x)
            return link_approx(outputs, spread[:, :, 0], 1.0)

        return Method(probabilities, 1.0, self._facts(used))

    def sampled(self) -> Method:
        """The mean over samples of the weights, with the lambda under which held-out examples are most likely."""
        x, classes = (part[:SAMPLED_FOR] for part in self.held_out)

        def likely(used: float) -> float:
            return float(class_log_likelihood(self._averaged(used).probabilities(x), classes.numpy()).mean())

        tried = {float(used): likely(float(used)) for used in COARSE}
        best = max(tried, key=tried.__getitem__)
        tried |= {float(best * factor): likely(float(best * factor)) for factor in FINER}
        return self._averaged(max(tried, key=tried.__getitem__))

    def _averaged(self, used: float) -> Method:
        std = (self.curvature + used).rsqrt().float()
        mean = parameters_of(self.model)
        spread = {p.name: std[p.offset : p.offset + p.size].reshape(p.shape) for p in self.job.layout.parameters}
        return averaged(self.model, gaussian_samples(mean, spread, SAMPLES, self.seed), self._facts(used))

    def _facts(self, used: float) -> dict[str, float]:
        return {"bytes": 2 * state_bytes(self.model), "prior_precision": used}
