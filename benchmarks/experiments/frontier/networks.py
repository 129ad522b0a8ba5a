"""The networks of the experiment on quality and price, trained once and kept (`benchmarks.experiments.kept`)."""

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.experiments.frontier.data import Problem
from benchmarks.experiments.kept import trained_once
from benchmarks.experiments.mnist.networks import Block
from offline.runtime.progress import Track

BATCH, LEARNING_RATE, WEIGHT_DECAY = 128, 0.01, 5e-4
PADDING = 4
EPOCHS = {"mnist": 3, "cifar": 8}


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
    """Three residual blocks of 16, 32 and 64 channels, D = 77,850; dropout after each block."""

    def __init__(self, dropout: float = 0.0, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.block1, self.block2, self.block3 = Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)
        self.drop1, self.drop2, self.drop3 = (nn.Dropout(dropout) for _ in range(3))
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop1(self.block1(self.stem(x)))
        x = self.drop3(self.block3(self.drop2(self.block2(x))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


NETWORKS = {"mnist": DigitNetwork, "cifar": PhotoNetwork}


def trained(problem: Problem, seed: int, dropout: float, tag: str, epochs: int, track: Track) -> nn.Module:
    """The network in eval mode, from the cache where it is there."""
    kind = "dropout" if dropout else "plain"
    torch.manual_seed(seed)
    model: nn.Module = NETWORKS[problem.name](dropout)
    name = f"frontier-{problem.name}-{kind}-{seed}-{tag}"
    return trained_once(name, model, lambda: train(model, problem.name, problem.train, epochs, seed, track))


def train(model: nn.Module, kind: str, examples: tuple[Tensor, Tensor], epochs: int, seed: int, track: Track) -> None:
    """AdamW with a one-cycle schedule; photos (kind "cifar") mirrored and moved by up to four pixels."""
    model.train()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third faster for photos
    inputs, targets = examples
    optimiser = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    rows = range(0, len(inputs), BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=epochs * len(rows))
    generator = np.random.default_rng(seed)
    vary = partial(_varied, generator=generator) if kind == "cifar" else _same
    for epoch in range(epochs):
        order = torch.as_tensor(generator.permutation(len(inputs)))
        for start in track(rows, f"{kind}, seed {seed}, epoch {epoch + 1} of {epochs}", len(rows)):
            places = order[start : start + BATCH]
            optimiser.zero_grad()
            F.cross_entropy(model(vary(inputs[places])), targets[places]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def _same(x: Tensor) -> Tensor:
    return x


def _varied(x: Tensor, generator: np.random.Generator) -> Tensor:
    """The whole batch mirrored or not, and moved alike: cheap, and as good over many batches."""
    if generator.random() < 0.5:
        x = x.flip(3)
    down, right = (int(n) for n in generator.integers(0, 2 * PADDING + 1, 2))
    return F.pad(x, [PADDING] * 4)[:, :, down : down + x.shape[2], right : right + x.shape[3]]
