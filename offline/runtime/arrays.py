"""Between torch and NumPy."""

from typing import Any

import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any]


def to_numpy(tensor: Tensor) -> Array:
    """The tensor on the CPU as an array."""
    array: Array = tensor.detach().cpu().numpy()
    return array
