"""Contexts for selection strategies: small networks, among them one with dead weights."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline.config import FitConfig
from demur.offline.data.given import Given
from demur.offline.data.held_out import collect_held_out
from demur.offline.data.likelihood import Regression, likelihood_of
from demur.offline.jacobian.find_head import find_head
from demur.offline.job import Job
from demur.offline.laplace.noise import residual_noise
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.distributed import DistributedContext
from demur.offline.runtime.progress import silent
from demur.offline.selection.context import SelectionContext
from demur.offline.selection.registry import STRATEGIES
from demur.service.format.manifest import Task
from tests import reference
from tests.support.cases import CASES, Case

CPU = torch.device("cpu")
Batches = list[tuple[Tensor, Tensor]]
CASE = {case.name: case for case in CASES}
NAMES = ["mlp-classification-2", "cnn-classification-10", "batchnorm-cnn-regression-2"]
cases = pytest.mark.parametrize("case", [CASE[name] for name in NAMES], ids=NAMES)
PRIOR, COUNT = 0.7, 24
DEAD = {6, 7, 8, 14, 18, 22}
NAMED = [name for name in STRATEGIES if name != "auto"]
# Options that a strategy cannot do without, for the networks below, and such that make it quick.
OPTIONS: dict[str, dict[str, Any]] = {name: {} for name in NAMED} | {
    "wasserstein-swag": {"snapshots": 3},
}
WHOLE = {name for name, strategy in STRATEGIES.items() if strategy.whole}  # they take layers, not S weights
ALWAYS_LIVE = {"wasserstein-laplace"}


def make_job(
    model: nn.Module,
    batches: Iterable[Any],
    size: int,
    outputs: int = 2,
    task: Task = "classification",
    sigma_noise: float | None = None,
    device: torch.device = CPU,
    **changes: Any,
) -> Job:
    """A job as a fit makes it; the noise of a regression is by default that of its training data's residuals."""
    network, layout = private_copy(model, device), WeightLayout.of(model)
    likelihood = likelihood_of(task, outputs, sigma_noise)
    if isinstance(likelihood, Regression) and sigma_noise is None:
        data = collect_held_out(iter(batches), likelihood)
        noise, ratios = residual_noise(private_copy(model, CPU), data)
        shared = noise * float(np.sqrt(np.square(ratios or [1.0]).mean()))
        likelihood = Regression(outputs, shared)
    job = Job(
        config=FitConfig(likelihood=task, prior_precision=1.0),
        network=network,
        layout=layout,
        device=device,
        distributed=DistributedContext(),
        train=Given("train_loader", batches),
        example=next(iter(batches))[0][:2].to(device),
        likelihood=likelihood,
        size=size,
        memory_bytes=2**30,
        track=silent,
        head=find_head(network, next(iter(batches))[0][:2].to(device)),
    )
    return changed(job, **changes)


def changed(job: Job, **changes: Any) -> Job:
    """The same with other fields, or with another configuration."""
    chosen = {name: value for name, value in changes.items() if name in FitConfig.model_fields}
    others = {name: value for name, value in changes.items() if name not in chosen}
    config = job.config.model_copy(update=chosen)
    train = Given("train_loader", others.pop("train", job.train.batches))
    return replace(job, config=config, train=train, **others)


class Reread:
    """A loader that asks anew for every pass."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        return iter(self.make())


def context(
    model: nn.Module,
    batches: Iterable[Any],
    size: int,
    outputs: int = 2,
    likelihood: Task = "classification",
    memory_bytes: int = 2**26,
    candidate_weights: Tensor | None = None,
    **changes: Any,
) -> SelectionContext:
    job = make_job(model, batches, size, outputs, likelihood, **changes)
    return SelectionContext(
        job, size, torch.arange(job.layout.total) if candidate_weights is None else candidate_weights, memory_bytes
    )


def case_context(case: Case, size: int, count: int = COUNT, **changes: Any) -> SelectionContext:
    batches = case.batches(count, 7)
    return context(case.model(), batches, size, case.outputs, case.likelihood, **changes)


def problem() -> tuple[nn.Module, Batches]:
    """BatchNorm and dropout included; D = 65, the last layer has 12."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)
    )
    return model, [(torch.randn(6, 4), torch.randint(0, 2, (6,))) for _ in range(3)]


def dead_problem() -> tuple[nn.Module, Batches]:
    """Hidden unit 2 never fires: its 3 incoming weights, its bias and its 2 outgoing weights are dead; D = 26."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].get_parameter("bias").copy_(torch.tensor([2.0, 2.0, -100.0, 2.0]))
    return model, [(torch.randn(8, 3), torch.randint(0, 2, (8,))) for _ in range(2)]


@cache
def truth(name: str, prior: float = PRIOR, noise: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(jacobian (N, K, D), precision (D, D)) of a case in float64; noise None: the residuals' for regression."""
    case = CASE[name]
    inputs, targets = case.data(COUNT)
    mean, jacobian = reference.full_jacobian(case.model(), inputs)
    if case.likelihood == "regression" and noise is None:
        noise = float(np.sqrt(np.mean((targets.numpy() - mean) ** 2)))
    return jacobian, reference.posterior_precision(mean, jacobian, case.likelihood, prior, noise)
