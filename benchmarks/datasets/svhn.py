"""The cropped digits of SVHN (Netzer et al., 2011), test part."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.io import loadmat  # type: ignore[import-untyped]

from benchmarks.datasets.download import DataError, RemoteFile
from benchmarks.datasets.folder import local

Bytes = npt.NDArray[np.uint8]
TEST = RemoteFile(
    "svhn",
    "test_32x32.mat",
    ("http://ufldl.stanford.edu/housenumbers/test_32x32.mat",),
    "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",  # tensorflow-datasets'
    64275384,
)


def load() -> tuple[Bytes, Bytes]:
    """Pixels (26032, 32, 32, 3) and digits (26032,)."""
    return read(local(TEST))


def read(path: Path) -> tuple[Bytes, Bytes]:
    """Pixels (n, 32, 32, 3) and digits (n,) of a MATLAB file: X (32, 32, 3, n), y (n, 1) with 10 for the digit 0."""
    content = loadmat(path, variable_names=["X", "y"])
    if (missing := {"X", "y"} - content.keys()) or content["X"].shape[:3] != (32, 32, 3):
        found = f"no {' and '.join(sorted(missing))}" if missing else f"X {content['X'].shape}"
        raise DataError(f"{path}: found {found}, expected X (32, 32, 3, n) and y (n, 1)")
    pixels, digits = content["X"].astype(np.uint8), content["y"].ravel() % 10
    return np.ascontiguousarray(pixels.transpose(3, 0, 1, 2)), digits.astype(np.uint8)
