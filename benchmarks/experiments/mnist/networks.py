"""The two networks of the MNIST experiment, trained once and kept (`benchmarks.experiments.kept`)."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.experiments.kept import trained_once

BATCH, LEARNING_RATE, WEIGHT_DECAY = 128, 0.01, 5e-4


def small_cnn() -> nn.Module:
    """Two convolutions and a linear layer, D = 9,098."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(784, 10),
    )


class Block(nn.Module):
    """Two 3x3 convolutions with batch normalisation around a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        out: Tensor = F.relu(inner + self.shortcut(x))
        return out


def small_resnet() -> nn.Module:
    """Three residual blocks of 16, 32 and 64 channels, about 77,700 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Block(16, 16, 1),
        Block(16, 32, 2),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


NETWORKS = {"cnn": small_cnn, "resnet": small_resnet}
# Path prefixes of the cheap end: the last block (the last convolution of the CNN) and the head.
LAST_BLOCK = {"cnn": ("3", "7"), "resnet": ("5", "8")}


def trained(name: str, seed: int, inputs: Tensor, targets: Tensor, epochs: int, tag: str) -> nn.Module:
    """The network in eval mode, from the cache where it is there."""
    torch.manual_seed(seed)
    model = NETWORKS[name]()
    return trained_once(f"mnist-{name}-{seed}-{tag}", model, lambda: _train(model, inputs, targets, epochs, seed))


def _train(model: nn.Module, inputs: Tensor, targets: Tensor, epochs: int, seed: int) -> None:
    """AdamW with a one-cycle schedule."""
    model.train()
    steps = epochs * -(-len(inputs) // BATCH)
    optimiser = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=steps)
    generator = np.random.default_rng(seed)
    for _ in range(epochs):
        for rows in torch.split(torch.as_tensor(generator.permutation(len(inputs))), BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(inputs[rows]), targets[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
