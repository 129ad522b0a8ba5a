"""The networks of the experiment on quality and price, trained once and kept (`benchmarks.experiments.kept`)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.experiments import training
from benchmarks.experiments.frontier.data import Problem
from benchmarks.experiments.kept import trained_once
from benchmarks.experiments.training import Recipe, one_cycle, same, varied
from benchmarks.fit.networks.resnets import BasicBlock, conv
from demur.offline.runtime.progress import Track

EPOCHS = {"mnist": 3, "fashion": 5, "cifar": 8}


class DigitNetwork(nn.Module):
    """Two convolutions and a linear layer, D = 9,098; dropout before each layer but the first."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.drop1, self.drop2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.head = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop1(F.max_pool2d(F.relu(self.conv1(x)), 2))
        x = self.drop2(F.max_pool2d(F.relu(self.conv2(x)), 2))
        logits: Tensor = self.head(x.flatten(1))
        return logits


class PhotoNetwork(nn.Module):
    """Three residual blocks of 16, 32 and 64 channels, D = 78,042; dropout after each block."""

    def __init__(self, dropout: float = 0.0, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
        self.block1, self.block2, self.block3 = (
            BasicBlock(inner, width, stride) for inner, width, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
        )
        self.drop1, self.drop2, self.drop3 = (nn.Dropout(dropout) for _ in range(3))
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop1(self.block1(self.stem(x)))
        x = self.drop3(self.block3(self.drop2(self.block2(x))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


NETWORKS = {"mnist": DigitNetwork, "fashion": DigitNetwork, "cifar": PhotoNetwork}


def trained(problem: Problem, seed: int, dropout: float, tag: str, epochs: int, track: Track) -> nn.Module:
    """The network in eval mode, from the cache where it is there."""
    kind = "dropout" if dropout else "plain"
    torch.manual_seed(seed)
    model: nn.Module = NETWORKS[problem.name](dropout)
    name = f"frontier-{problem.name}-{kind}-{seed}-{tag}"
    return trained_once(name, model, lambda: train(model, problem.name, problem.train, epochs, seed, track))


def trained_on(
    name: str, model: nn.Module, kind: str, examples: tuple[Tensor, Tensor], epochs: int, track: Track
) -> nn.Module:
    """The model in eval mode, trained on these examples from seed 0 or with the weights kept under `name`."""
    return trained_once(name, model, lambda: train(model, kind, examples, epochs, 0, track))


def train(model: nn.Module, kind: str, examples: tuple[Tensor, Tensor], epochs: int, seed: int, track: Track) -> None:
    """AdamW with a one-cycle schedule; photos (kind "cifar") mirrored and moved by up to four pixels."""
    recipe = Recipe(epochs, one_cycle, vary=varied if kind == "cifar" else same)
    training.train(model, examples, recipe, seed, torch.device("cpu"), track)
