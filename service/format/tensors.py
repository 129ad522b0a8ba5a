"""Tensors of any safetensors file of a bundle, taken one by one and checked."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from .files import BundleError

Array = npt.NDArray[Any]
Tensors = dict[str, Array]


def read_tensors(file: Path, data: bytes) -> Tensors:
    """The tensors of a safetensors file by name; `BundleError` naming `file`."""
    try:
        return safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BundleError(file, f"not a safetensors file: {error}") from error


def take(file: Path, tensors: Tensors, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    """Remove one tensor from `tensors`, checked for presence, type, shape (-1: any) and finiteness; `BundleError`."""
    if name not in tensors:
        raise BundleError(file, f"tensor {name!r} is missing")
    array = tensors.pop(name)
    if array.dtype != np.dtype(dtype):
        raise BundleError(file, f"tensor {name!r}: found dtype {array.dtype}, expected {dtype}")
    fits = array.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits:
        raise BundleError(file, f"tensor {name!r}: found shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        raise BundleError(file, f"tensor {name!r}: found NaN or infinity, expected finite numbers")
    return array


def refuse_rest(file: Path, tensors: Tensors) -> None:
    """`BundleError` where any tensor is left."""
    for name in sorted(tensors):
        raise BundleError(file, f"unexpected tensor {name!r:.100}")
