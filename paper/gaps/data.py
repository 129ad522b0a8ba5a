"""Regressions with a gap: the test rows are the middle third by one input, beside ordinary rows kept from training."""

from dataclasses import dataclass

import numpy as np

from benchmarks.datasets import toy, uci
from paper.fitted import standardising
from paper.tables.data import Array, Table

VALIDATION_SHARE, ORDINARY_SHARE = 0.2, 0.1
TOYS = "matern_1d", "my_1d", "agw_1d", "wiggle_1d"
TABLES = "wine", "kin8nm", "protein"


@dataclass(frozen=True)
class GapSplit:
    """Rows to train on, for early stopping and calibration, ordinary ones to test, and those inside the gap.

    Standardised by the rows to train on; scale: standard deviation of the targets, original units.
    """

    name: str
    train: Table
    validation: Table
    ordinary: Table
    gap: Table
    scale: float


def load(name: str, number: int) -> GapSplit:
    """Gap split `number` of a UCI table; of a toy, whose one gap is the middle third of its rows, draw `number`."""
    if name in TABLES:
        return split(name, *uci.table(name), *uci.split(name, "gap", number), number)
    columns = toy.columns(name)
    x, y = columns[:, :1], columns[:, 1:2]
    order = np.argsort(x[:, 0], kind="stable")
    low, high = len(x) // 3, len(x) - len(x) // 3
    return split(name, x, y, np.concatenate([order[:low], order[high:]]), order[low:high], number)


def splits(name: str) -> int:
    """How many gap splits there are; a toy has any number of draws."""
    return uci.splits(name, "gap") if name in TABLES else 10


def split(name: str, x: Array, y: Array, training: Array, gap: Array, seed: int) -> GapSplit:
    """Shuffle the rows by the seed, and cut the validation and the ordinary rows off those outside the gap."""
    generator = np.random.default_rng(seed)
    training, gap = generator.permutation(training), generator.permutation(gap)
    first = round(VALIDATION_SHARE * len(training))
    second = first + round(ORDINARY_SHARE * len(training))
    train = training[second:]
    inputs, targets = standardising(x[train]), standardising(y[train])

    def table(rows: Array) -> Table:
        return Table(inputs(x[rows]), targets(y[rows]))

    ordinary = training[first:second]
    scale = float(y[train].std())
    return GapSplit(name, table(train), table(training[:first]), table(ordinary), table(gap), scale)
