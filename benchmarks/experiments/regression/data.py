"""Five tables and two synthetic ones, standardised by their rows for training.

diamonds      53,940 diamonds by nine properties (plotnine): the price
diabetes      442 patients by ten measurements (scikit-learn): the progress of the disease
kin8nm        8,192 arms of eight joints (UCI): the distance of the end
protein       45,730 proteins by nine properties (UCI): the deviation of the structure
wine          1,588 red wines by eleven measurements (UCI): the quality
by-column     noise that a column tells and the mean ignores
constant      the same mean, with one noise for all
"""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_diabetes
from torch import Tensor

from benchmarks.datasets import uci
from benchmarks.datasets.packages import PackagedFile, packaged

Array = npt.NDArray[Any]
Examples = tuple[Tensor, Tensor]

DIAMONDS = PackagedFile(
    "plotnine==0.15.9",
    "plotnine/data/diamonds.csv",
    "9574730b03aba241d899c4a97511c5061b19358fab89510774fb6c24168345c4",
)
GRADES = {
    "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
    "color": tuple("JIHGFED"),
    "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
}
TRAIN, HELD_OUT, TEST = 5_000, 500, 5_000  # rows at most
SYNTHETIC = TRAIN + HELD_OUT + TEST
SHARE = 0.3  # of a small table, held out and again for the test


@dataclass(frozen=True)
class Table:
    """Rows (n, F) and targets (n, 1) to train, to hold out and to test."""

    train: Examples
    held_out: Examples
    test: Examples


def load(name: str, seed: int, held_out: int = HELD_OUT) -> Table:
    """One of `TABLES`, split by the seed."""
    draw = np.random.default_rng(seed)
    x, y = TABLES[name](draw)
    order, most = draw.permutation(len(x)), int(SHARE * len(x))
    ends = np.cumsum([min(held_out, most), min(TEST, most), TRAIN])
    own, test, train, _ = np.split(order, ends)

    def part(rows: Array) -> Examples:
        pair = ((each[rows] - each[train].mean(0)) / each[train].std(0) for each in (x, y))
        inputs, targets = (torch.as_tensor(each, dtype=torch.float32) for each in pair)
        return inputs, targets

    return Table(part(train), part(own), part(test))


def diamonds(_: np.random.Generator) -> tuple[Array, Array]:
    """(53940, 9), grades by their rank, and prices in dollars."""
    rows = list(csv.DictReader(io.StringIO(packaged(DIAMONDS).decode())))
    names = [name for name in rows[0] if name != "price"]
    x = [[GRADES[name].index(row[name]) if name in GRADES else float(row[name]) for name in names] for row in rows]
    return np.array(x, np.float64), np.array([[float(row["price"])] for row in rows])


def diabetes(_: np.random.Generator) -> tuple[Array, Array]:
    """(442, 10) and a measure from 25 to 346."""
    x, y = load_diabetes(return_X_y=True)
    return x, y[:, np.newaxis]


def by_column(draw: np.random.Generator) -> tuple[Array, Array]:
    """(10500, 6): the deviation grows from 0.1 to 0.9 with the fourth column."""
    x, mean = _smooth(draw)
    return x, mean + 0.3 * np.exp(0.55 * x[:, 3:4]) * draw.standard_normal(mean.shape)


def constant(draw: np.random.Generator) -> tuple[Array, Array]:
    """(10500, 6): a deviation of 0.3."""
    x, mean = _smooth(draw)
    return x, mean + 0.3 * draw.standard_normal(mean.shape)


def _smooth(draw: np.random.Generator) -> tuple[Array, Array]:
    x = draw.uniform(-2, 2, (SYNTHETIC, 6))
    return x, (np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2])[:, np.newaxis]


def _of_uci(name: str) -> Callable[[np.random.Generator], tuple[Array, Array]]:
    return lambda _: uci.table(name)


TABLES: dict[str, Callable[[np.random.Generator], tuple[Array, Array]]] = {
    "diamonds": diamonds,
    "diabetes": diabetes,
    "kin8nm": _of_uci("kin8nm"),
    "protein": _of_uci("protein"),
    "wine": _of_uci("wine"),
    "by-column": by_column,
    "constant": constant,
}
