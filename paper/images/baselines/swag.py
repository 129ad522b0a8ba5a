"""SWAG (Maddox et al., 2019): a diagonal and low-rank Gaussian over the weights along a trajectory of SGD.

    w = mean + sqrt(1/2) diag_std * z_1 + (2 (R - 1))^(-1/2) D z_2,

D (D, R) the last R deviations of the snapshots from their running mean; batch statistics are measured again for every
sample.
"""

import copy
import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters
from torch.optim.swa_utils import update_bn

from benchmarks.experiments.frontier.methods import Method
from benchmarks.experiments.training import BATCH, Optimise, Recipe, Vary, same
from benchmarks.experiments.training import train as learn
from demur.offline.data.likelihood import class_log_likelihood
from demur.offline.runtime.progress import Track
from paper.images.baselines.point import state_bytes
from paper.images.baselines.weight_samples import SAMPLES, State, averaged

RANK, MOMENTUM, WEIGHT_DECAY = 20, 0.9, 1e-4
RATES = (0.01, 0.05, 0.2)
SETTINGS = {"rates": list(RATES), "augmented": True}
STATISTICS = 2048  # training examples for batch statistics
Examples = tuple[Tensor, Tensor]


@dataclass
class Moments:
    """Running moments of the snapshots, (D,) each, and the last `RANK` deviations."""

    mean: Tensor
    square: Tensor
    count: int = 0
    deviations: list[Tensor] = field(default_factory=list)

    def add(self, weights: Tensor) -> None:
        self.count += 1
        self.mean += (weights - self.mean) / self.count
        self.square += (weights.square() - self.square) / self.count
        self.deviations = [*self.deviations, weights - self.mean][-RANK:]

    def sample(self, generator: torch.Generator) -> Tensor:
        std = (self.square - self.mean.square()).clamp(min=0).sqrt()
        wide = torch.stack(self.deviations, dim=1)
        along = wide @ torch.randn(wide.shape[1], generator=generator).to(wide)
        noise = torch.randn(len(std), generator=generator).to(std)
        return self.mean + math.sqrt(0.5) * std * noise + along / math.sqrt(2 * max(1, wide.shape[1] - 1))


@dataclass(frozen=True)
class Walk:
    """A constant learning rate for so many epochs, with `snapshots` in each; vary: augmentation of a batch."""

    epochs: int
    snapshots: int
    rate: float
    vary: Vary = same


@dataclass(frozen=True)
class Data:
    """Examples to walk on, and those that choose the learning rate."""

    train: Examples
    held_out: Examples


def swag(model: nn.Module, data: Data, walk: Walk, seed: int, track: Track) -> Method:
    """The walk with the one of `RATES` under whose posterior held-out examples are most likely."""
    found = [sampled(model, data.train, replace(walk, rate=rate), seed, track) for rate in RATES]
    x, y = data.held_out
    scores = [class_log_likelihood(one.probabilities(x), y.numpy()).mean() for one in found]
    return found[int(np.argmax(scores))]


def sampled(model: nn.Module, train: Examples, walk: Walk, seed: int, track: Track) -> Method:
    """The mean over samples of the weights."""
    own = copy.deepcopy(model)
    moments = trajectory(own, train, walk, seed, track)
    generator = torch.Generator().manual_seed(seed)
    states: list[State] = []
    for _ in range(SAMPLES):
        vector_to_parameters(moments.sample(generator), own.parameters())
        update_bn(torch.split(train[0][:STATISTICS], BATCH), own, weights_of(own).device)
        states.append({name: values.clone() for name, values in own.state_dict().items()})
    facts = {"bytes": (2 + len(moments.deviations)) * state_bytes(model), "learning_rate": walk.rate}
    return averaged(own.eval(), states, facts)


def trajectory(model: nn.Module, train: Examples, walk: Walk, seed: int, track: Track) -> Moments:
    """Walk on from the trained weights, in place."""
    weights = weights_of(model)
    moments = Moments(torch.zeros_like(weights), torch.zeros_like(weights))
    every = max(1, math.ceil(len(train[0]) / BATCH) // walk.snapshots)

    def look(network: nn.Module, step: int) -> None:
        if (step + 1) % every == 0:
            moments.add(weights_of(network))

    recipe = Recipe(walk.epochs, constant(walk.rate), BATCH, walk.vary, look=look)
    learn(model, train, recipe, seed, weights.device, track)
    model.to(weights.device)
    return moments


def constant(rate: float) -> Optimise:
    """Makes SGD with momentum at one learning rate."""
    return lambda model, _steps, _epoch: (
        torch.optim.SGD(model.parameters(), rate, MOMENTUM, weight_decay=WEIGHT_DECAY),
        None,
    )


def weights_of(model: nn.Module) -> Tensor:
    """A copy of all parameters as one vector, whichever way they lie in memory."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
