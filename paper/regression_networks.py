"""The paper's perceptrons: ReLU units, stochastic gradient descent, and an observation noise learnt with the weights.

Daxberger et al. (ICML 2021), appendix "Experimental Setup", for toys and UCI tables alike.
"""

import copy
import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, BATCH = 1e-3, 0.9, 1e-4, 512


@dataclass(frozen=True)
class Shape:
    """A perceptron with `depth` hidden layers of `width` units."""

    width: int
    depth: int

    @property
    def name(self) -> str:
        return f"{self.width}x{self.depth}"

    def weights(self, features: int) -> int:
        """D without biases: (features + 1) width + (depth - 1) width^2."""
        return (features + 1) * self.width + (self.depth - 1) * self.width**2

    def network(self, features: int, seed: int) -> nn.Module:
        """One output, with torch's own random weights."""
        torch.manual_seed(seed)
        hidden = pairwise([features, *[self.width] * self.depth])
        layers = [layer for sizes in hidden for layer in (nn.Linear(*sizes), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(self.width, 1))


class GaussianModel(nn.Module):
    """A network and log sigma, one observation noise for all examples."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.log_sigma = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.network(x)
        return out

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """-log N(y; f(x), sigma^2), mean over examples."""
        z: Tensor = (y - self.network(x)) * torch.exp(-self.log_sigma)
        return 0.5 * z.square().mean() + self.log_sigma + 0.5 * math.log(2 * math.pi)

    def optimiser(self) -> torch.optim.Optimizer:
        """Weight decay is on the network's parameters, not on log sigma."""
        groups = [
            {"params": list(self.network.parameters()), "weight_decay": WEIGHT_DECAY},
            {"params": [self.log_sigma], "weight_decay": 0.0},
        ]
        return torch.optim.SGD(groups, LEARNING_RATE, MOMENTUM, fused=True)

    def epoch(self, optimiser: torch.optim.Optimizer, x: Tensor, y: Tensor, generator: np.random.Generator) -> None:
        """One pass in a random order."""
        order = torch.as_tensor(generator.permutation(len(x)))
        for batch in zip(torch.split(x[order], BATCH), torch.split(y[order], BATCH), strict=True):
            optimiser.zero_grad()
            self.loss(*batch).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


@dataclass(frozen=True)
class Patience:
    """At most `epochs`, and no more than `patience` without a better loss, which is computed `every` so many epochs."""

    epochs: int
    patience: int
    every: int = 1


def train_network(
    model: GaussianModel, train: tuple[Tensor, Tensor], watched: tuple[Tensor, Tensor], limits: Patience, seed: int
) -> None:
    """Leaves the weights and the noise of the smallest loss on `watched` that was seen.

    This is a validation set, for early stopping, or the training data: gradient descent jumps now and then.
    """
    optimiser, generator = model.optimiser(), np.random.default_rng(seed)
    best, best_epoch, kept = math.inf, 0, copy.deepcopy(model.state_dict())
    for epoch in range(1, limits.epochs + 1):
        model.epoch(optimiser, *train, generator)
        if epoch % limits.every and epoch < limits.epochs:
            continue
        with torch.no_grad():
            loss = float(model.loss(*watched))
        if loss < best:
            best, best_epoch, kept = loss, epoch, copy.deepcopy(model.state_dict())
        elif epoch - best_epoch >= limits.patience:
            break
    model.load_state_dict(kept)


def without_biases(network: nn.Module) -> nn.Module:
    """The same network, its biases frozen: inference is over weights only."""
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(not name.endswith("bias"))
    return network
