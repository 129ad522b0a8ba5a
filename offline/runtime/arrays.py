"""Between torch and NumPy."""

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]


def to_numpy(tensor: Tensor) -> Array:
    """The tensor on the CPU as an array."""
    array: Array = tensor.detach().cpu().numpy()
    return array


def in_chunks(inputs: Tensor, targets: Tensor, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The batch in pieces of at most `rows` examples."""
    return zip(torch.split(inputs, rows), torch.split(targets, rows), strict=True)
