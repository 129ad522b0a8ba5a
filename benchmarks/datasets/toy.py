"""One-dimensional regression problems: columns x, y of matern_1d, agw_1d and wiggle_1d; my_1d also has a test set."""

from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.datasets import dun
from benchmarks.datasets.folder import given

Array = npt.NDArray[Any]
WIGGLE = "wiggle_1d"  # no file of the repository: its loader draws it


def columns(name: str) -> Array:
    """The examples (n, 2) or (n, 4), as stored: agw_1d is not standardised."""
    path = f"toy/{name}.npy"
    found = given(path)
    if found is None and name == WIGGLE:
        return wiggle()
    stored: Array = np.load(found or dun.local_file(path), allow_pickle=False)
    return stored.astype(np.float64)


def wiggle() -> Array:
    """x = 5 + 2.5 n1, y = sin(pi x) + 0.2 cos(4 pi x) - 0.3 x + 0.25 n2, standardised: (300, 2)."""
    first, second = np.random.RandomState(0).standard_normal((2, 300))  # the original's draws
    x = 5 + 2.5 * first
    y = np.sin(np.pi * x) + 0.2 * np.cos(4 * np.pi * x) - 0.3 * x + 0.25 * second
    drawn = np.stack([x, y], axis=1)
    standardised: Array = (drawn - drawn.mean(0)) / drawn.std(0)
    return standardised.astype(np.float32).astype(np.float64)  # as it was published
