"""Small regression problems: one-dimensional toys and UCI tables, with the points on which predictives are compared."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.datasets import toy as toy_data
from benchmarks.datasets import uci as uci_data

Array = npt.NDArray[Any]
MOST_POINTS = 400


@dataclass(frozen=True)
class Problem:
    """Standardised training data x (N, F), y (N, 1), and named inputs (n, F): "test", and "gap" or "outside"."""

    name: str
    x: Array
    y: Array
    points: dict[str, Array]


def toy(name: str, seed: int) -> Problem:
    """A fifth at random is the test set; "outside" are points between and beyond the clusters."""
    columns = toy_data.columns(name)
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
    x, y = uci_data.table(name)
    train, test = uci_data.split(name, split, seed)
    generator = np.random.default_rng(seed)
    sets = {"test": generator.permutation(test)}
    if split == "gap":
        train = generator.permutation(train)
        held_out, train = train[: len(train) // 10], train[len(train) // 10 :]
        sets = {"test": held_out, "gap": sets["test"]}
    scale = standardising(x[train])
    points = {key: scale(x[kept[:MOST_POINTS]]) for key, kept in sets.items()}
    return Problem(f"{name}-{split}", scale(x[train]), standardising(y[train])(y[train]), points)


def standardising(train: Array) -> Callable[[Array], Array]:
    """What takes away the mean of these rows and divides by their standard deviation, column by column."""
    mean, std = train.mean(0), train.std(0)
    return lambda values: (values - mean) / np.where(std > 0, std, 1.0)
