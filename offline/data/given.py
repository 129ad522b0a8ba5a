"""What users give as data: a pair (X, y) of tensors, arrays or data frames, a dataset, or batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from probity.offline.data.loaders import Batches, check_loader
from probity.service.inference.frames import frame_array, frame_columns, is_frame, numbers_of

BATCH_SIZE = 128


@dataclass(frozen=True)
class GivenData:
    """batches: (inputs, targets), readable several times; columns: the names of a data frame's, or None."""

    batches: Batches
    columns: tuple[str, ...] | None = None


def given_data(data: Any, name: str, columns: Sequence[str] | None = None) -> GivenData:
    """`data` as batches; a data frame's columns are put in the order of `columns`, or stay in their own for None.

    A pair of tensors, arrays or data frames, and a dataset of examples, are cut into batches in the given order;
    anything else must be batches, and passes as it is. name: of the argument, for errors. Raises `ValueError` for
    columns that are missing or hold no numbers, and for unequal lengths; `TypeError` for what gives no batches.
    """
    if _is_pair(data):
        x, y = data
        names = columns
        if is_frame(x) and columns is None:
            names = frame_columns(x)
        inputs, targets = _inputs(x, names, name), _targets(y, name)
        if len(inputs) != len(targets):
            raise ValueError(f"{name}: found {len(inputs)} inputs and {len(targets)} targets, expected as many of each")
        batches = DataLoader(TensorDataset(inputs, targets), batch_size=BATCH_SIZE)
        return GivenData(batches, tuple(names) if is_frame(x) and names is not None else None)
    if isinstance(data, Dataset):
        return GivenData(DataLoader(data, batch_size=BATCH_SIZE))
    check_loader(data, name)
    return GivenData(data)


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_array, data))


def _is_array(part: Any) -> bool:
    return hasattr(part, "__array__") or is_frame(part)


def _inputs(x: Any, names: Sequence[str] | None, name: str) -> Tensor:
    if is_frame(x):
        array = frame_array(x, names, name)
        if not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array))[0].tolist()
            where = f"column {names[column]!r:.80}" if names is not None else f"column {column}"
            raise ValueError(f"{name}, {where}, row {row}: found {array[row, column]}, expected a finite number")
        return torch.as_tensor(array).float()
    return _tensor(x, name)


def _targets(y: Any, name: str) -> Tensor:
    """A frame of one column is that column."""
    targets = _tensor(y, f"{name}, targets")
    return targets.squeeze(1) if is_frame(y) and targets.shape[1] == 1 else targets


def _tensor(part: Any, where: str) -> Tensor:
    if isinstance(part, Tensor):
        return part
    return torch.as_tensor(np.require(numbers_of(part, where), requirements=["C", "W"]))
