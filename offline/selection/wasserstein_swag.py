"""The paper's rule on large networks: variances along an SGD trajectory (diagonal SWAG, Maddox et al. 2019)."""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ..data.likelihood import Classification
from .context import SelectionContext, choose_largest
from .live_weights import eligible
from .subnetwork import Subnetwork

Schedule = Literal["constant", "cosine-cyclic"]
Finite = Field(allow_inf_nan=False)


@dataclass(frozen=True)
class Trajectory:
    """How SWAG walks: one cycle an epoch, one snapshot at the end of each.

    schedule "constant" keeps `learning_rate`; "cosine-cyclic" lowers it in each cycle from `learning_rate` to next to
    0, so that a snapshot is where the walk has come to rest. `seed` sets torch's generator, which a shuffling loader
    draws from.
    """

    snapshots: int
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: Schedule
    seed: int

    def rates(self, steps: int) -> Iterator[float]:
        """The learning rate of each of the `steps` steps of a cycle."""
        for step in range(steps):
            share = (1 + math.cos(math.pi * step / steps)) / 2 if self.schedule == "cosine-cyclic" else 1.0
            yield self.learning_rate * share


def wasserstein_swag(
    context: SelectionContext,
    snapshots: Annotated[int, Field(ge=2)] = 40,
    learning_rate: Annotated[float, Field(gt=0), Finite] = 0.01,
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9,
    weight_decay: Annotated[float, Field(ge=0), Finite] = 0.0,
    schedule: Schedule = "constant",
    seed: Annotated[int, Field(ge=0)] | None = None,
    live_only: bool = False,
) -> Subnetwork:
    """Largest variance along an SGD trajectory that starts at the trained weights (Daxberger et al. 2021, section 4).

    `seed` None: the fit's. Raises `ValueError` for a trajectory that diverges.
    """
    used = context.job.config.seed if seed is None else seed
    trajectory = Trajectory(snapshots, learning_rate, momentum, weight_decay, schedule, used)
    positions, dead = eligible(context, live_only)
    return choose_largest(context, positions, trajectory_variance(context, trajectory)[positions], dead)


def trajectory_variance(context: SelectionContext, trajectory: Trajectory) -> Tensor:
    """Var_d = E[w_d^2] - E[w_d]^2 over the snapshots, (D,) float64.

    A copy is trained on, on the mean negative log-likelihood. It stays in eval mode: dropout off, BatchNorm statistics
    fixed, so the trajectory is that of the function that will be served.
    """
    network = copy.deepcopy(context.job.network)
    named = dict(network.named_parameters())
    trained = [named[p.name].requires_grad_(True) for p in context.job.layout.parameters]
    optimiser = torch.optim.SGD(
        trained, lr=trajectory.learning_rate, momentum=trajectory.momentum, weight_decay=trajectory.weight_decay
    )
    noise_variance, steps = _target_variance(context), sum(1 for _ in context.job.pass_over_training())
    mean = torch.zeros(context.job.layout.total, dtype=torch.float64)
    squares = torch.zeros_like(mean)
    device = context.job.weights.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(trajectory.seed)
        for count in context.job.track(range(1, trajectory.snapshots + 1), "SWAG snapshots", trajectory.snapshots):
            _train_cycle(network, optimiser, context, noise_variance, trajectory.rates(steps))
            weights = _finite(context.job.layout.flatten(named).detach().double().cpu(), trajectory.learning_rate)
            delta = weights - mean  # Welford's update: no difference of large numbers
            mean += delta / count
            squares += delta * (weights - mean)
    return squares / trajectory.snapshots


def _finite(weights: Tensor, learning_rate: float) -> Tensor:
    if not bool(torch.isfinite(weights).all()):
        raise ValueError(
            f"SWAG: the weights diverged at learning_rate={learning_rate}; give a smaller one in selection_options"
        )
    return weights


def _target_variance(context: SelectionContext) -> float:
    """Variance of the targets about their mean (regression): the noise scale that makes a step independent of units.

    Not the residuals': where a network fits well they are next to nothing, and every step would be too large.
    """
    likelihood = context.job.likelihood
    if isinstance(likelihood, Classification):
        return 1.0
    parts = [likelihood.check_targets(t, len(x)) for x, t in context.job.pass_over_training()]
    targets = likelihood.standardised(torch.cat(parts).double())
    return float((targets - targets.mean(0)).square().mean()) or 1.0


def _train_cycle(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    context: SelectionContext,
    noise_variance: float,
    rates: Iterator[float],
) -> None:
    for inputs, targets in context.job.pass_over_training():
        optimiser.param_groups[0]["lr"] = next(rates, optimiser.param_groups[0]["lr"])
        optimiser.zero_grad()
        with torch.enable_grad():
            output = network(inputs)
            checked = context.job.likelihood.check_targets(targets, len(inputs))
            context.job.likelihood.training_loss(output, checked, noise_variance).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
