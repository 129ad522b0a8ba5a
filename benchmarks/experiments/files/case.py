"""One file with examples: what a fit is given, and what it is measured on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
Inputs = Tensor | dict[str, Tensor]
Examples = tuple[Inputs, Tensor]
SHARES = (0.4, 0.7)  # of the examples: up to here to train, up to there held out, the others to test


@dataclass(frozen=True)
class Case:
    """content: the file's bytes. package: where it is from, or what made it. kind: what it is, in a few words. Examples
    are inputs, one tensor or several by name, and classes."""

    content: bytes
    package: str
    kind: str
    train: Examples
    held_out: Examples
    test: Examples


def case(content: bytes, package: str, kind: str, x: Array | Mapping[str, Array], y: Array) -> Case:
    """With the examples in an order that is drawn once, in three parts."""
    whole = {name: torch.as_tensor(each) for name, each in x.items()} if isinstance(x, Mapping) else torch.as_tensor(x)
    order = torch.as_tensor(np.random.default_rng(0).permutation(len(y)))
    ends = [int(share * len(y)) for share in SHARES]
    train, held_out, test = (
        (rows_of(whole, rows), torch.as_tensor(y)[rows]) for rows in torch.tensor_split(order, ends)
    )
    return Case(content, package, kind, train, held_out, test)


def rows_of(x: Inputs, rows: Tensor | slice) -> Inputs:
    """Some examples."""
    return {name: each[rows] for name, each in x.items()} if isinstance(x, dict) else x[rows]


def count_of(x: Inputs) -> int:
    """How many examples there are."""
    return len(next(iter(x.values())) if isinstance(x, dict) else x)
