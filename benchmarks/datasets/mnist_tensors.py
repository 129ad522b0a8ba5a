"""MNIST and Fashion-MNIST as tensors, and digits turned about their middle."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.datasets import mnist

MEAN, STD = 0.1307, 0.3081


def images(name: str, part: str) -> Tensor:
    """Pixels in [0, 1], (n, 1, 28, 28) float32; part is "train" or "t10k"."""
    return torch.from_numpy(mnist.images(name, part)).unsqueeze(1).float() / 255


def labels(name: str, part: str) -> Tensor:
    """Class numbers (n,) int64."""
    return torch.from_numpy(mnist.labels(name, part)).long()


def normalise(pixels: Tensor) -> Tensor:
    """Pixels to zero mean and unit deviation over the training digits."""
    return (pixels - MEAN) / STD


def examples(name: str, part: str) -> tuple[Tensor, Tensor]:
    """Normalised pixels and class numbers."""
    return normalise(images(name, part)), labels(name, part)


def rotate(pixels: Tensor, degrees: float) -> Tensor:
    """Turned about the middle, bilinear, black outside; (n, 1, 28, 28) -> the same shape."""
    angle = math.radians(degrees)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
    grid = F.affine_grid(turn.expand(len(pixels), 2, 3), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, align_corners=False)
