"""MNIST, Fashion-MNIST and CIFAR-10, to judge quality and price: training and held-out data, shifts, foreign images."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.datasets import cifar, mnist
from benchmarks.experiments.corruptions import ROTATIONS, UNSEEN

NAMES = ("mnist", "fashion", "cifar")
FOREIGN = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
HELD_OUT = 2000  # of the training images, never trained on
CIFAR_MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).reshape(1, 3, 1, 1)
CIFAR_STD = torch.tensor([0.2470, 0.2435, 0.2616]).reshape(1, 3, 1, 1)


@dataclass(frozen=True)
class Problem:
    """Images (n, C, H, W), normalised, and classes (n,).

    tests: "usual", those of `ROTATIONS` and of `UNSEEN`, all of the same examples; foreign: images of other things,
    the most usual comparison first.
    """

    name: str
    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    tests: dict[str, Tensor]
    classes: Tensor
    foreign: dict[str, Tensor]


def load(name: str, test_examples: int) -> Problem:
    """One of `NAMES`."""
    return _cifar(test_examples) if name == "cifar" else _grey(name, test_examples)


def _grey(name: str, count: int) -> Problem:
    """MNIST or Fashion-MNIST; each is foreign to the other."""
    file, other = ("mnist", "fashion-mnist") if name == "mnist" else ("fashion-mnist", "mnist")
    inputs, targets = mnist.examples(file, "train")
    pixels, classes = mnist.images(file, "t10k")[:count], mnist.labels(file, "t10k")[:count]
    shifted = {label: change(pixels) for label, change in (ROTATIONS | UNSEEN).items()}
    train, held_out = _split(inputs, targets)
    return Problem(
        name,
        train,
        held_out,
        {label: mnist.normalise(x) for label, x in ({"usual": pixels} | shifted).items()},
        classes,
        {
            FOREIGN[other]: mnist.normalise(mnist.images(other, "t10k")[:count]),
            "grey CIFAR-10": mnist.normalise(_grey_photos(count)),
        },
    )


def _grey_photos(count: int) -> Tensor:
    """Photos in grey and in the size of the digits, (n, 1, 28, 28)."""
    grey = cifar_images("cifar10", "test_batch")[0][:count].mean(1, keepdim=True)
    return F.interpolate(grey, size=(28, 28), mode="bilinear", antialias=True)


def _cifar(count: int) -> Problem:
    inputs, targets = cifar10_training()
    pixels, classes = (values[:count] for values in cifar_images("cifar10", "test_batch"))
    shifted = {name: change(pixels) for name, change in UNSEEN.items()}
    train, held_out = _split(inputs, targets)
    return Problem(
        "cifar",
        train,
        held_out,
        {name: normalise(x) for name, x in ({"usual": pixels} | shifted).items()},
        classes,
        {"CIFAR-100": normalise(cifar_images("cifar100", "test")[0][::5][:count])},
    )


def _split(inputs: Tensor, targets: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and held-out examples, drawn at random: the last of MNIST's training images are its easiest."""
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    train, held_out = order[HELD_OUT:], order[:HELD_OUT]
    return (inputs[train], targets[train]), (inputs[held_out], targets[held_out])


def cifar_images(name: str, part: str) -> tuple[Tensor, Tensor]:
    """Pixels in [0, 1], (n, 3, 32, 32) float32, and classes (n,) int64, of a part of "cifar10" or "cifar100"."""
    pixels, classes = cifar.read(name, part)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float() / 255
    return images, torch.from_numpy(classes).long()


def cifar10_training() -> tuple[Tensor, Tensor]:
    """The 50,000 training images, normalised, and their classes."""
    parts = [cifar_images("cifar10", f"data_batch_{number}") for number in range(1, 6)]
    return normalise(torch.cat([pixels for pixels, _ in parts])), torch.cat([classes for _, classes in parts])


def normalise(pixels: Tensor) -> Tensor:
    """CIFAR pixels to zero mean and unit deviation."""
    return (pixels - CIFAR_MEAN) / CIFAR_STD
