"""MNIST and Fashion-MNIST as tensors, and digits turned about their middle."""

import gzip
import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.experiments.selection.data import data_folder

MEAN, STD = 0.1307, 0.3081


def images(name: str, part: str) -> Tensor:
    """Pixels in [0, 1], (n, 1, 28, 28) float32; part is "train" or "t10k"."""
    return _idx(name, f"{part}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28).float() / 255


def labels(name: str, part: str) -> Tensor:
    """Class numbers (n,) int64."""
    return _idx(name, f"{part}-labels-idx1-ubyte", 8).long()


def _idx(name: str, file: str, header: int) -> Tensor:
    with gzip.open(data_folder() / name / f"{file}.gz") as source:
        return torch.from_numpy(np.frombuffer(source.read(), np.uint8, offset=header).copy())


def normalise(pixels: Tensor) -> Tensor:
    """Pixels to zero mean and unit deviation over the training digits."""
    return (pixels - MEAN) / STD


def rotate(pixels: Tensor, degrees: float) -> Tensor:
    """Turned about the middle, bilinear, black outside; (n, 1, 28, 28) -> the same shape."""
    angle = math.radians(degrees)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]])
    grid = F.affine_grid(turn.expand(len(pixels), 2, 3), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, align_corners=False)
