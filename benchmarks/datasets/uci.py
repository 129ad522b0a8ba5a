"""UCI tables for regression (wine, kin8nm, protein), with the standard splits and the gap splits of Foong et al."""

from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.datasets import dun

Array = npt.NDArray[Any]


def table(name: str) -> tuple[Array, Array]:
    """Features (N, F) and target (N, 1), float64, in original units."""
    rows = np.loadtxt(dun.local_file(f"uci/{name}/data.txt"))
    features, target = (_indices(f"uci/{name}/index_{kind}.txt") for kind in ("features", "target"))
    return rows[:, features], rows[:, target].reshape(-1, 1)


def splits(name: str, kind: str) -> int:
    """How many splits of a kind, "standard" or "gap", a table has."""
    return sum(path.startswith(f"uci/{name}/{kind}/index_train_") for path in dun.files())


def split(name: str, kind: str, number: int) -> tuple[Array, Array]:
    """The rows for training and for the test, as stored; in a gap split, the test has the middle third of a feature."""
    train, test = (_indices(f"uci/{name}/{kind}/index_{part}_{number}.txt") for part in ("train", "test"))
    return train, test


def _indices(path: str) -> Array:
    return np.loadtxt(dun.local_file(path)).astype(int)
