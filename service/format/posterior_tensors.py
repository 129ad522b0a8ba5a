"""posterior.safetensors: written, and read with every tensor checked.

Reader and writer stand side by side so that they cannot drift. `service/BUNDLE.md` is the normative text.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from ..maths.posterior_factor import CholeskyPosterior
from .files import BundleError
from .manifest import Manifest
from .tensors import Tensors, read_tensors, refuse_rest, take

Array = npt.NDArray[Any]


def pack_lower_triangle(matrix: Array, dtype: npt.DTypeLike | None = None) -> Array:
    """The lower triangle (S, S) -> (S (S + 1) / 2,), row by row, in `dtype` (None: the matrix's own)."""
    size = len(matrix)
    packed = np.empty(size * (size + 1) // 2, dtype or matrix.dtype)
    for row in range(size):  # an index array of the triangle would take four times the memory of the matrix
        start = row * (row + 1) // 2
        packed[start : start + row + 1] = matrix[row, : row + 1]
    return packed


def unpack_lower_triangle(packed: Array, size: int) -> Array:
    """Inverse of `pack_lower_triangle`: (S (S + 1) / 2,) -> (S, S) with zeros above the diagonal."""
    matrix = np.zeros((size, size), packed.dtype)
    for row in range(size):
        start = row * (row + 1) // 2
        matrix[row, : row + 1] = packed[start : start + row + 1]
    return matrix


def check_posterior(posterior: CholeskyPosterior, manifest: Manifest) -> None:
    """`ValueError` where the posterior is not over as many weights as the manifest says."""
    found, expected = posterior.scale_tril.shape, (manifest.subnetwork_size,) * 2
    if found != expected:
        raise ValueError(f"posterior: found {found}, expected {expected} as in the manifest; give the one it describes")


def posterior_to_bytes(posterior: CholeskyPosterior, subnetwork_indices: Array) -> bytes:
    """The content of posterior.safetensors, rounded to float32."""
    tensors = {
        "subnetwork_indices": np.asarray(subnetwork_indices, np.int64),
        "scale_tril_packed": pack_lower_triangle(posterior.scale_tril, np.float32),
    }
    return safetensors.numpy.save(tensors)


def posterior_from_bytes(file: Path, data: bytes, manifest: Manifest) -> tuple[CholeskyPosterior, Array]:
    """The posterior and subnetwork_indices (S,) in `data`, checked; `BundleError` naming `file`."""
    tensors = read_tensors(file, data)
    del data  # as large as the tensors made of it
    indices = take(file, tensors, "subnetwork_indices", "int64", (manifest.subnetwork_size,))
    if (indices[1:] <= indices[:-1]).any() or indices[0] < 0 or indices[-1] >= manifest.parameter_count:
        raise BundleError(
            file, f"subnetwork_indices: expected strictly ascending positions below {manifest.parameter_count}"
        )
    return _cholesky(file, tensors, manifest), indices


def _cholesky(file: Path, tensors: Tensors, manifest: Manifest) -> CholeskyPosterior:
    size = manifest.subnetwork_size
    packed = take(file, tensors, "scale_tril_packed", "float32", (size * (size + 1) // 2,))
    refuse_rest(file, tensors)
    scale_tril = unpack_lower_triangle(packed, size)
    if not (np.diagonal(scale_tril) > 0).all():
        raise BundleError(file, "scale_tril: found a diagonal entry that is not positive, expected a Cholesky factor")
    return CholeskyPosterior(scale_tril)
