"""Variational inference with a natural-gradient optimiser, in the place of the paper's VOGN.

IVON (Shen et al., "Variational Learning is Effective for Large Deep Networks", ICML 2024; the package `ivon-opt`) is
VOGN's successor by the same group: a Gaussian with a diagonal covariance over all weights, learnt from the start.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.experiments.frontier.methods import Method
from paper.images.baselines.point import state_bytes
from paper.images.baselines.weight_samples import (
    SAMPLES,
    averaged,
    gaussian_samples,
    parameters_of,
)

WEIGHT_DECAY = 1e-4
LEAST_MEMORY = 50  # steps


@dataclass(frozen=True)
class Start:
    """The learning rate, the curvature that the training starts from, and the share of its steps that it remembers.

    A short training must forget the first curvature, or the spread would be that guess; a network with normalisation
    does not learn where the spread grows before the weights have settled.
    """

    rate: float
    curvature: float
    memory: float

    @property
    def settings(self) -> dict[str, list[float]]:
        """What outcomes depend on."""
        return {"learning rate and curvature": [self.rate, self.curvature, self.memory]}


# Under which each network learns. On photographs: the best held-out log-likelihood of four rates from 0.2 to 2 (-1.14,
# -0.99, -0.98 and -1.21 with the memory of all steps), and of half the memory (-0.96).
STARTS = {"mnist": Start(0.2, 0.05, 0.2), "cifar": Start(1.0, 0.5, 0.5)}


class VariationalNetwork(nn.Module):
    """A network whose parameters are means, and their standard deviations (D,) beside them."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.std: Tensor
        self.register_buffer("std", torch.zeros(sum(p.numel() for p in inner.parameters())))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x)
        return logits

    def keep_spread(self, optimiser: Optimizer) -> None:
        """The posterior's standard deviation, (N (h + weight_decay))^(-1/2)."""
        (group,) = optimiser.param_groups
        self.std.copy_((group["ess"] * (group["hess"] + group["weight_decay"])).rsqrt())


def ivon(examples: int, start: Start) -> Any:
    """Makes the optimiser and its schedule for so many training examples."""

    def optimise(model: nn.Module, steps: int, _: int) -> tuple[Optimizer, CosineAnnealingLR]:
        from ivon import IVON  # type: ignore[import-untyped]  # only this row needs it

        optimiser = IVON(
            model.parameters(),
            lr=start.rate,
            ess=examples,
            hess_init=start.curvature,
            beta2=1 - 1 / max(LEAST_MEMORY, start.memory * steps),
            weight_decay=WEIGHT_DECAY,
        )
        return optimiser, CosineAnnealingLR(optimiser, steps)

    return optimise


def sampled_weights(optimiser: Any) -> AbstractContextManager[Any]:
    """A forward and backward pass at weights drawn from the posterior."""
    context: AbstractContextManager[Any] = optimiser.sampled_params(train=True)
    return context


def variational(network: VariationalNetwork, seed: int) -> Method:
    """The mean over samples of the weights."""
    mean = parameters_of(network.inner)
    sizes = [values.numel() for values in mean.values()]
    parts = zip(mean.items(), torch.split(network.std.cpu(), sizes), strict=True)
    spread = {name: std.reshape(values.shape) for (name, values), std in parts}
    states = gaussian_samples(mean, spread, SAMPLES, seed)
    return averaged(network.inner, states, {"bytes": 2 * state_bytes(network.inner)})
