"""Small regression problems: one-dimensional toys and UCI tables, with the points on which predictives are compared."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
MOST_POINTS = 400


@dataclass(frozen=True)
class Problem:
    """Standardised training data x (N, F), y (N, 1), and named inputs (n, F): "test", and "gap" or "outside"."""

    name: str
    x: Array
    y: Array
    points: dict[str, Array]


def data_folder() -> Path:
    """The folder that the environment variable PROBITY_DATA_DIR names; `SystemExit` where it is not set."""
    folder = os.environ.get("PROBITY_DATA_DIR")
    if not folder or not Path(folder).is_dir():
        raise SystemExit(f"PROBITY_DATA_DIR: found {folder!r}, expected the folder that holds mnist/, uci/ and toy/")
    return Path(folder)


def toy(name: str, seed: int) -> Problem:
    """A fifth at random is the test set; "outside" are points between and beyond the clusters."""
    columns = np.load(data_folder() / "toy" / f"{name}.npy").astype(np.float64)
    x, y = columns[:, :1], columns[:, 1:2]
    order = np.random.default_rng(seed).permutation(len(x))
    test, train = order[: len(x) // 5], order[len(x) // 5 :]
    grid = np.linspace(x.min() - 1, x.max() + 1, MOST_POINTS)[:, None]
    outside = grid[np.abs(grid - x.T).min(1) > 0.15]
    scale = standardising(x[train])
    return Problem(
        name, scale(x[train]), standardising(y[train])(y[train]), {"test": scale(x[test]), "outside": scale(outside)}
    )


def uci(name: str, split: str, seed: int) -> Problem:
    """Split number `seed`; of a "gap" split the middle third of a feature is "gap" and a tenth of the rest "test"."""
    folder = data_folder() / "uci" / name
    rows = np.loadtxt(folder / "data.txt")
    features, target = (np.loadtxt(folder / f"index_{kind}.txt").astype(int) for kind in ("features", "target"))
    train, test = (np.loadtxt(folder / split / f"index_{kind}_{seed}.txt").astype(int) for kind in ("train", "test"))
    generator = np.random.default_rng(seed)
    sets = {"test": generator.permutation(test)}
    if split == "gap":
        train = generator.permutation(train)
        held_out, train = train[: len(train) // 10], train[len(train) // 10 :]
        sets = {"test": held_out, "gap": sets["test"]}
    x, y = rows[:, features], rows[:, target].reshape(-1, 1)
    scale = standardising(x[train])
    points = {key: scale(x[kept[:MOST_POINTS]]) for key, kept in sets.items()}
    return Problem(f"{name}-{split}", scale(x[train]), standardising(y[train])(y[train]), points)


def standardising(train: Array) -> Callable[[Array], Array]:
    """What takes away the mean of these rows and divides by their standard deviation, column by column."""
    mean, std = train.mean(0), train.std(0)
    return lambda values: (values - mean) / np.where(std > 0, std, 1.0)
