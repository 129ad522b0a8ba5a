"""UCI tables and their standard and gap splits, with a validation set cut from the training rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, as_tensor

from benchmarks.experiments.selection.data import data_folder, standardising

Array = npt.NDArray[Any]
VALIDATION_SHARE = 0.15


@dataclass(frozen=True)
class Table:
    """Inputs (n, F) and targets (n, 1), standardised, float64."""

    x: Array
    y: Array

    def first(self, rows: int | None) -> "Table":
        """At most so many rows: a random part, since their order is random; None: all."""
        return Table(self.x[:rows], self.y[:rows])

    def tensors(self) -> tuple[Tensor, Tensor]:
        """In float32, for training."""
        return as_tensor(self.x).float(), as_tensor(self.y).float()


@dataclass(frozen=True)
class Split:
    """Training, validation and test rows in random order; scale: standard deviation of the targets, original units.

    Standardised by the training rows that are left without the validation set.
    """

    name: str
    train: Table
    validation: Table
    test: Table
    scale: float


def splits(dataset: str, kind: str) -> int:
    """How many splits of a `kind`, "standard" or "gap", there are."""
    return len(list((data_folder() / "uci" / dataset / kind).glob("index_train_*.txt")))


def load(dataset: str, kind: str, number: int) -> Split:
    """The rows of split `number`."""
    folder = data_folder() / "uci" / dataset
    rows = np.loadtxt(folder / "data.txt")
    features, target = (np.loadtxt(folder / f"index_{part}.txt").astype(int) for part in ("features", "target"))
    training, test = (
        np.loadtxt(folder / kind / f"index_{part}_{number}.txt").astype(int) for part in ("train", "test")
    )
    return split(f"{dataset}-{kind}", rows[:, features], rows[:, target].reshape(-1, 1), training, test, number)


def split(name: str, x: Array, y: Array, training: Array, test: Array, seed: int) -> Split:
    """Shuffle the rows by the seed, and cut the validation set off the training rows."""
    generator = np.random.default_rng(seed)
    training, test = generator.permutation(training), generator.permutation(test)
    held_out = round(VALIDATION_SHARE * len(training))
    validation, train = training[:held_out], training[held_out:]
    inputs, targets = standardising(x[train]), standardising(y[train])

    def table(rows: Array) -> Table:
        return Table(inputs(x[rows]), targets(y[rows]))

    return Split(name, table(train), table(validation), table(test), float(y[train].std()))
