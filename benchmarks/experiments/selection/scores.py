"""Every strategy's order of the weights, measured once for a network and cut at each size.

The scores are those of the offline job's strategies.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.experiments.selection.data import Problem
from probity.offline.config import FitConfig
from probity.offline.data.likelihood import Regression
from probity.offline.data.shifts import synthetic_shifts
from probity.offline.jacobian.plan import make_jacobian
from probity.offline.job import prepare
from probity.offline.laplace.posterior import Spectrum
from probity.offline.network.model_copy import private_copy
from probity.offline.network.weights import WeightLayout
from probity.offline.runtime.distributed import DistributedContext
from probity.offline.runtime.progress import silent
from probity.offline.selection.context import SelectionContext
from probity.offline.selection.live_weights import is_live
from probity.offline.selection.sample import Sample
from probity.offline.selection.strategies.greedy import closest, outputs_to_match
from probity.offline.selection.strategies.leverage import exact_leverage
from probity.offline.selection.strategies.sampled_leverage import draw, sampled_leverage
from probity.offline.selection.strategies.wasserstein_swag import Trajectory, trajectory_variance
from probity.offline.selection.streaming import mean_squares

PRECISIONS = np.logspace(-3, 4, 71)
BATCH = 128
MEMORY = 4 * 2**30
SAMPLED = 256  # examples of the approximate leverage


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
    def eigenvalues(self) -> Tensor:
        values: Tensor = torch.linalg.eigvalsh(self.ggn)
        return values.clamp(min=0)

    @cached_property
    def prior_precision(self) -> float:
        """Of the largest evidence of the full network."""
        weights = self.layout.flatten(dict(self.exact.named_parameters()))
        evidence = Spectrum(self.eigenvalues, torch.empty(0)).log_evidence(weights, PRECISIONS)
        return float(PRECISIONS[int(np.argmax(evidence))])

    @property
    def degrees_of_freedom(self) -> float:
        """tr(H (H + lambda I)^-1): the number of weights that the data determine."""
        return float((self.eigenvalues / (self.eigenvalues + self.prior_precision)).sum())

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


def orders(fitted: Fitted) -> dict[str, Tensor]:
    """Strategy -> positions, best first."""
    context, everything = fitted.context, torch.arange(fitted.total)
    curvature = fitted.ggn.diagonal()
    live = is_live(curvature)
    factor = torch.linalg.cholesky(_precision(fitted, fitted.prior_precision))
    marginal = torch.cholesky_inverse(factor).diagonal()
    gradient = mean_squares(context, everything, lambda: (x for x, _ in context.job.pass_over_training()))
    shifted = [y for x, _ in context.job.pass_over_training() for y in synthetic_shifts(x, fitted.seed).values()]
    novelty = mean_squares(context, everything, lambda: iter(shifted)) / gradient.clamp(min=1e-300)
    drawn = torch.as_tensor(np.random.default_rng(fitted.seed).permutation(fitted.total))
    swag = trajectory_variance(context, Trajectory(40, 0.01, 0.9, 0.0, "constant", fitted.seed))
    scores = {
        "wasserstein-swag": swag,
        "wasserstein-laplace": _among(live, -curvature),
        "wasserstein-exact": _among(live, marginal),
        "gradient": gradient,
        "novelty": _among(live & (gradient > 0), novelty),
        "leverage": exact_leverage(context, everything, Sample.of(context, None)),
        "leverage, sampled": sampled_leverage(context, everything, draw(context, SAMPLED)),
        "magnitude": context.job.weights.abs(),
        "random": drawn.double(),
        "random live": _among(live, drawn.double()),
    }
    return {name: torch.argsort(score, descending=True, stable=True) for name, score in scores.items()}


def _among(allowed: Tensor, scores: Tensor) -> Tensor:
    return torch.where(allowed, scores, -torch.inf)


def greedy(fitted: Fitted, sizes: Iterable[int], scaling: Literal["subnetwork", "none"]) -> dict[int, Tensor]:
    """Size -> positions: they depend on it, through lambda S / D, and on the scaling."""
    rows = outputs_to_match(fitted.context, fitted.context.candidate_weights)
    given = fitted.context
    job = replace(given.job, config=given.job.config.model_copy(update={"prior_scaling": scaling}))
    contexts = (replace(given, job=job, size=size) for size in sizes)
    return {context.size: closest(context, fitted.ggn, rows).sort().values for context in contexts}


def _precision(fitted: Fitted, prior_precision: float) -> Tensor:
    precision: Tensor = fitted.ggn + prior_precision * torch.eye(fitted.total, dtype=torch.float64)
    return precision
