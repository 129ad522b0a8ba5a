"""Rotated MNIST and corrupted CIFAR-10, with images of other things."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.datasets import mnist, svhn
from benchmarks.datasets.download import DataError
from benchmarks.experiments.corruptions import rotation
from benchmarks.experiments.frontier import data as frontier_data
from paper.corruptions.registry import CORRUPTIONS

ANGLES = tuple(range(0, 181, 15))
LEVELS = tuple(range(6))
HELD_OUT = frontier_data.HELD_OUT
Examples = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Problem:
    """Normalised images (n, C, H, W) and classes (n,).

    tests: pixels of one set of examples by the strength of the shift (degrees, or a level), 0 without a shift;
    kinds (n,): the number of the corruption of each test example in `kind_names`, where there are several;
    foreign: images of other things, by name; published: the name of the experiment in the paper's tables.
    """

    name: str
    published: str
    train: Examples
    held_out: Examples
    tests: dict[int, Tensor]
    classes: Tensor
    foreign: dict[str, Tensor]
    kinds: Tensor
    kind_names: tuple[str, ...]


def rotated_mnist(train: int, test: int) -> Problem:
    """The first `train` training digits, and `test` test digits turned by 0 to 180 degrees."""
    inputs, targets = mnist.examples("mnist", "train")
    pixels, classes = mnist.images("mnist", "t10k")[:test], mnist.labels("mnist", "t10k")[:test]
    return Problem(
        "mnist",
        "rotated_mnist",
        (inputs[:-HELD_OUT][:train], targets[:-HELD_OUT][:train]),
        (inputs[-HELD_OUT:], targets[-HELD_OUT:]),
        {angle: mnist.normalise(rotation(angle)(pixels)) for angle in ANGLES},
        classes,
        {"Fashion-MNIST": mnist.normalise(mnist.images("fashion-mnist", "t10k")[:test])},
        torch.zeros(len(classes), dtype=torch.int64),
        ("rotation",),
    )


def corrupted_cifar10(train: int, test: int) -> Problem:
    """The first `train` training images, and `test` test images at five levels of corruption.

    Every test image has one of the 16 corruptions, in equal numbers, and keeps it at all levels: an estimate of the
    mean over all images and corruptions from a sixteenth of the predictions, without bias.
    """
    inputs, targets = frontier_data.cifar10_training()
    pixels, classes = (values[:test] for values in frontier_data.cifar_images("cifar10", "test_batch"))
    kinds = torch.arange(len(classes)) % len(CORRUPTIONS)
    shifted = {level: corrupted(pixels, kinds, level) for level in LEVELS[1:]}
    return Problem(
        "cifar",
        "corrupted_cifar10",
        (inputs[:-HELD_OUT][:train], targets[:-HELD_OUT][:train]),
        (inputs[-HELD_OUT:], targets[-HELD_OUT:]),
        {level: frontier_data.normalise(x) for level, x in ({0: pixels} | shifted).items()},
        classes,
        _foreign_photos(test),
        kinds,
        tuple(CORRUPTIONS),
    )


def _foreign_photos(count: int) -> dict[str, Tensor]:
    """SVHN, as in the paper; where it is not to be had, CIFAR-100 in its place, under its own name."""
    try:
        digits, _ = svhn.load()
    except DataError as error:
        print(f"CIFAR-100 stands in for SVHN: {error}", flush=True)
        photos, _ = frontier_data.cifar_images("cifar100", "test")
        return {"CIFAR-100": frontier_data.normalise(photos[:: max(1, len(photos) // count)][:count])}
    pixels = torch.from_numpy(digits[:count]).permute(0, 3, 1, 2).float() / 255
    return {"SVHN": frontier_data.normalise(pixels)}


def corrupted(pixels: Tensor, kinds: Tensor, level: int) -> Tensor:
    """Each image under the corruption whose number is in `kinds`; pixels (n, C, H, W) in [0, 1]."""
    result = pixels.clone()
    for number, corrupt in enumerate(CORRUPTIONS.values()):
        rows = (kinds == number).nonzero()[:, 0]
        given = (pixels[rows].permute(0, 2, 3, 1).numpy() * 255).round().astype(np.uint8)
        changed = corrupt(given, level, np.random.default_rng([level, number]))
        result[rows] = torch.from_numpy(changed).permute(0, 3, 1, 2).float() / 255
    return result


def batches(examples: Examples, size: int) -> Iterator[Examples]:
    """Consecutive batches."""
    yield from zip(torch.split(examples[0], size), torch.split(examples[1], size), strict=True)


PROBLEMS = {"mnist": rotated_mnist, "cifar": corrupted_cifar10}
