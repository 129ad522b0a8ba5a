"""UCI tables and their standard and gap splits, with a validation set cut from the training rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, as_tensor

from benchmarks.datasets import uci
from paper.fitted import standardising

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


def load(dataset: str, kind: str, number: int) -> Split:
    """The rows of split `number`."""
    return split(f"{dataset}-{kind}", *uci.table(dataset), *uci.split(dataset, kind, number), number)


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
