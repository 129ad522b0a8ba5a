"""MNIST and CIFAR-10 for the experiment on quality and price: training data, held-out data, shifts, foreign images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.datasets import cifar
from benchmarks.experiments.corruptions import ROTATIONS, UNSEEN
from benchmarks.experiments.mnist import data as mnist_data

HELD_OUT = 2000  # of the training images, never trained on
CIFAR_MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).reshape(1, 3, 1, 1)
CIFAR_STD = torch.tensor([0.2470, 0.2435, 0.2616]).reshape(1, 3, 1, 1)


@dataclass(frozen=True)
class Problem:
    """Images (n, C, H, W), normalised, and classes (n,).

    tests: "usual", those of `ROTATIONS` and of `UNSEEN`, all of the same examples; foreign: images of other things.
    """

    name: str
    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    tests: dict[str, Tensor]
    classes: Tensor
    foreign: dict[str, Tensor]


def load(name: str, test_examples: int) -> Problem:
    """ "mnist" or "cifar"."""
    return _mnist(test_examples) if name == "mnist" else _cifar(test_examples)


def _mnist(count: int) -> Problem:
    inputs, targets = mnist_data.normalise(mnist_data.images("mnist", "train")), mnist_data.labels("mnist", "train")
    pixels, classes = mnist_data.images("mnist", "t10k")[:count], mnist_data.labels("mnist", "t10k")[:count]
    shifted = {name: change(pixels) for name, change in (ROTATIONS | UNSEEN).items()}
    return Problem(
        "mnist",
        (inputs[:-HELD_OUT], targets[:-HELD_OUT]),
        (inputs[-HELD_OUT:], targets[-HELD_OUT:]),
        {name: mnist_data.normalise(x) for name, x in ({"usual": pixels} | shifted).items()},
        classes,
        {"Fashion-MNIST": mnist_data.normalise(mnist_data.images("fashion-mnist", "t10k")[:count])},
    )


def _cifar(count: int) -> Problem:
    parts = [cifar_images("cifar10", f"data_batch_{number}") for number in range(1, 6)]
    inputs = normalise(torch.cat([pixels for pixels, _ in parts]))
    targets = torch.cat([classes for _, classes in parts])
    pixels, classes = (values[:count] for values in cifar_images("cifar10", "test_batch"))
    shifted = {name: change(pixels) for name, change in UNSEEN.items()}
    return Problem(
        "cifar",
        (inputs[:-HELD_OUT], targets[:-HELD_OUT]),
        (inputs[-HELD_OUT:], targets[-HELD_OUT:]),
        {name: normalise(x) for name, x in ({"usual": pixels} | shifted).items()},
        classes,
        {"CIFAR-100": normalise(cifar_images("cifar100", "test")[0][::5][:count])},
    )


def cifar_images(name: str, part: str) -> tuple[Tensor, Tensor]:
    """Pixels in [0, 1], (n, 3, 32, 32) float32, and classes (n,) int64, of a part of "cifar10" or "cifar100"."""
    pixels, classes = cifar.read(name, part)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float() / 255
    return images, torch.from_numpy(classes).long()


def normalise(pixels: Tensor) -> Tensor:
    """CIFAR pixels to zero mean and unit deviation."""
    return (pixels - CIFAR_MEAN) / CIFAR_STD
