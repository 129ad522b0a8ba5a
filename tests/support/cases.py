"""The one named list of networks and data on which fast paths are compared with the oracle."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from demur.service.format.manifest import Task


@dataclass(frozen=True)
class Case:
    """A network with K outputs, its data, and the likelihood."""

    name: str
    likelihood: Task
    outputs: int
    build: Callable[[int], nn.Module]
    input_shape: tuple[int, ...]

    def model(self, seed: int = 0) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = self.build(self.outputs)
            for module in model.modules():  # statistics that an eval-mode BatchNorm would have
                if isinstance(module, nn.BatchNorm2d):
                    module.running_mean = torch.randn(module.num_features) / 3
                    module.running_var = torch.rand(module.num_features) + 0.5
            return model

    def data(self, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1000 + seed)
        inputs = torch.randn(count, *self.input_shape, generator=generator)
        if self.likelihood == "classification":
            return inputs, torch.randint(0, self.outputs, (count,), generator=generator)
        if self.likelihood == "multilabel":
            return inputs, torch.randint(0, 2, (count, self.outputs), generator=generator)
        return inputs, torch.randn(count, self.outputs, generator=generator)

    def batches(self, count: int, size: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
        inputs, targets = self.data(count, seed)
        return list(zip(inputs.split(size), targets.split(size), strict=True))


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, outputs))


def cnn(outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24, outputs),
    )


def batchnorm_cnn(outputs: int) -> nn.Module:
    """BatchNorm's weights take the generic route; average pooling; dropout must be off."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(16, outputs),
    )


LIKELIHOODS: tuple[tuple[Task, int], ...] = (
    ("classification", 2),
    ("classification", 10),
    ("multilabel", 3),
    ("regression", 1),
    ("regression", 2),
    ("regression", 10),
)
CASES = [
    Case(f"{name}-{likelihood}-{outputs}", likelihood, outputs, build, shape)
    for name, build, shape in (
        ("mlp", mlp, (4,)),
        ("cnn", cnn, (1, 8, 8)),
        ("batchnorm-cnn", batchnorm_cnn, (2, 6, 6)),
    )
    for likelihood, outputs in LIKELIHOODS
]
