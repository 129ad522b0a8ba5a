"""What users give as data: a pair (X, y) of tensors, arrays, data frames or texts, a dataset, or batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from demur.service.inference.frames import frame_array, frame_columns, is_frame, numbers_of
from demur.service.inference.texts import texts_of

from ..network.inputs import is_several, refuse_frames
from ..runtime.arrays import Array
from .loaders import Batches, check_loader, native, refuse_sparse
from .texts import TextEncoder, TextExamples, texts_in

BATCH_SIZE = 128
GIVE_TEXTS = "give (texts, labels), such as (list(texts), labels) or (frame['text'], frame['label'])"


@dataclass(frozen=True)
class GivenData:
    """batches: (inputs, targets), readable several times; columns: the names of a data frame's, or None; targets: those
    of a data frame of several targets; encoder: what made tokens of texts."""

    batches: Batches
    columns: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    encoder: TextEncoder | None = None

    @property
    def texts(self) -> Sequence[str]:
        """Those of the examples, where they are texts."""
        examples = getattr(self.batches, "dataset", None)
        return examples.texts if isinstance(examples, TextExamples) else ()


def given_data(
    data: Any,
    name: str,
    columns: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    encoder: TextEncoder | None = None,
) -> GivenData:
    """`data` as batches; a data frame's columns are put in the order of `columns`, or stay in their own for None; the
    same of several targets.

    A pair of tensors, arrays or data frames, and a dataset of examples, are cut into batches in the given order;
    anything else must be batches, and passes as it is. name: of the argument, for errors. encoder: what makes tokens of
    texts, of a pair too; None: texts are refused. Raises `ValueError` for
    columns that are missing or hold no numbers, for unequal lengths, and for inputs alone; `TypeError` for what gives
    no batches.
    """
    if isinstance(data, GivenData):
        return data
    if (texts := texts_in(data)) is not None:
        return _given_texts(texts, data[1], name, targets, encoder)
    _refuse_other_texts(data, name)
    _refuse_alone(data, name)
    _refuse_sparse(data, name)
    if _is_pair(data):
        x, y = data
        return _given_pair(x, y, name, columns, targets)
    if isinstance(data, tuple | list) and len(data) == 2 and is_several(data[0]) and _is_array(data[1]):
        examples = _Several(data[0], _targets(data[1], targets, name), name)
        return GivenData(DataLoader(examples, batch_size=BATCH_SIZE))
    if isinstance(data, tuple | list) and len(data) == 2 and _is_array(data[0]) and data[1] is None:
        raise ValueError(f"{name}: found inputs and None, expected inputs and targets: the pair (X, y)")
    if isinstance(data, Dataset):
        if not isinstance(data, IterableDataset) and not hasattr(data, "__len__"):
            raise TypeError(f"{name}: found {type(data).__name__} without a length; give it a method __len__")
        return GivenData(DataLoader(data, batch_size=BATCH_SIZE))
    check_loader(data, name)
    return GivenData(data)


def given_like(train: GivenData, data: Any, name: str, columns: Sequence[str] | None = None) -> GivenData:
    """`data` as batches, with the columns and targets of the training data, or these columns.

    Raises as `given_data`, and `ValueError` for columns with names where the training data have none to order them by.
    """
    found = given_data(data, name, columns or train.columns, train.targets, train.encoder)
    if columns is None and train.columns is None and found.columns is not None:
        raise ValueError(
            f"{name}: found columns with names, and training data without; give both as data frames, or both as arrays"
        )
    return found


def _given_texts(
    texts: Sequence[Any], y: Any, name: str, targets: Sequence[str] | None, encoder: TextEncoder | None
) -> GivenData:
    if encoder is None:
        raise ValueError(
            f"{name}: found texts, expected numbers; of texts, all data are pairs (texts, labels), with a tokenizer: "
            "fit_bundle(..., tokenizer=tokenizer), or tokenizer in a recipe"
        )
    if is_frame(y) and targets is None and len(y.columns) > 1:
        targets = frame_columns(y, f"{name}, targets")
    values = y if _is_array(y) else list(y)
    examples = TextExamples(encoder, texts, _targets(values, targets, name), name)
    return GivenData(DataLoader(examples, batch_size=BATCH_SIZE), targets=_named(y, targets), encoder=encoder)


def _refuse_other_texts(data: Any, name: str) -> None:
    """`ValueError` for texts in another form than a list, an array or a column, in a pair."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        return
    inputs = data[0]
    if is_frame(inputs) and len(inputs.columns) == 1:
        column = inputs.columns[0]
        if texts_of(inputs[column]) is not None:
            raise ValueError(f"{name}: found a data frame with one column of texts, expected the column; {GIVE_TEXTS}")
    values = next(iter(inputs.values()), None) if isinstance(inputs, Mapping) else inputs
    if isinstance(_first_entry(values), str | bytes):
        raise ValueError(f"{name}: found texts in another form, expected a list, an array or a column; {GIVE_TEXTS}")


def _first_entry(values: Any) -> Any:
    """The first entry of nested lists or of an array."""
    while isinstance(values, list) or (isinstance(values, np.ndarray) and values.ndim):
        if not len(values):
            return None
        values = values[0]
    return values


def _refuse_alone(data: Any, name: str) -> None:
    if _is_array(data):
        kind = "a data frame" if is_frame(data) else f"one {type(data).__name__}"
        example = "(frame[columns], frame['target'])" if is_frame(data) else "(X, y)"
        raise ValueError(f"{name}: found {kind} alone, expected inputs and targets: the pair {example}")
    if isinstance(data, tuple) and len(data) != 2 and all(map(_is_array, data)):
        raise ValueError(f"{name}: found {len(data)} arrays, expected two: inputs and targets, (X, y)")
    if isinstance(data, tuple | list) and len(data) == 2 and any(map(_is_plain_list, data)):
        rows = data[0] if isinstance(data[0], list) else ()
        wanted = "pandas.DataFrame(X)" if rows and isinstance(rows[0], Mapping) else "numpy.array(X)"
        raise ValueError(f"{name}: found lists, expected arrays: give {wanted} and numpy.array(y)")
    if isinstance(data, Mapping):
        raise ValueError(
            f"{name}: found a {type(data).__name__}, expected inputs and targets: the pair (X, y); of several inputs, "
            "X is a dict"
        )


def _refuse_sparse(data: Any, name: str) -> None:
    """`ValueError` for a sparse matrix in a pair, of SciPy or torch."""
    for part in data if isinstance(data, tuple | list) and len(data) == 2 else ():
        if hasattr(part, "toarray") and hasattr(part, "nnz"):
            raise ValueError(f"{name}: found a sparse {type(part).__name__}, expected an array; give X.toarray()")
        if isinstance(part, Tensor):
            refuse_sparse(part, name)


def _given_pair(x: Any, y: Any, name: str, columns: Sequence[str] | None, targets: Sequence[str] | None) -> GivenData:
    if is_frame(x) and columns is None:
        columns = frame_columns(x, name)
    if is_frame(y) and targets is None and len(y.columns) > 1:
        targets = frame_columns(y, f"{name}, targets")
    inputs, values = _inputs(x, columns, name), _targets(y, targets, name)
    if len(inputs) != len(values):
        raise ValueError(f"{name}: found {len(inputs)} inputs and {len(values)} targets, expected as many of each")
    _check_order(x, y, name)
    batches = DataLoader(TensorDataset(inputs, values), batch_size=BATCH_SIZE)
    return GivenData(batches, _named(x, columns), _named(y, targets))


def _check_order(x: Any, y: Any, name: str) -> None:
    """`ValueError` for frames whose rows have the same labels in another order."""
    of_inputs, of_targets = (getattr(part, "index", ()) for part in (x, y))
    if not (hasattr(of_inputs, "equals") and hasattr(of_targets, "equals")):  # as of pandas
        return
    if not of_inputs.equals(of_targets) and set(of_inputs) == set(of_targets):
        raise ValueError(
            f"{name}: found the rows of the targets in another order than those of the inputs, by their index; give "
            "targets.loc[inputs.index]"
        )


class _Several(Dataset[Any]):
    """Examples of several inputs, tensors or arrays in a mapping, tuple or list, and their targets."""

    def __init__(self, inputs: Mapping[str, Any] | Sequence[Any], targets: Tensor, name: str) -> None:
        refuse_frames(inputs, name)
        by_name = dict(inputs) if isinstance(inputs, Mapping) else dict(enumerate(inputs))
        self._inputs = {key: _tensor(value, f"{name}, input {key!r}") for key, value in by_name.items()}
        self._by_name, self._targets = isinstance(inputs, Mapping), targets
        lengths = {key: len(value) for key, value in self._inputs.items()}
        if set(lengths.values()) != {len(targets)}:
            raise ValueError(
                f"{name}: found inputs of {lengths} examples and {len(targets)} targets, expected as many of each"
            )

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, place: int) -> tuple[Any, Tensor]:
        found = {key: value[place] for key, value in self._inputs.items()}
        return (found if self._by_name else tuple(found.values())), self._targets[place]


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2 and all(map(_is_array, data))


def _is_plain_list(part: Any) -> bool:
    """Of numbers, lists or rows; a batch holds tensors."""
    return isinstance(part, list) and not any(map(_is_array, part))


def _is_array(part: Any) -> bool:
    return hasattr(part, "__array__") or is_frame(part)


def _inputs(x: Any, names: Sequence[str] | None, name: str) -> Tensor:
    if is_frame(x):
        return _shared(frame_array(x, names, name)).float()
    return _tensor(x, name)


def _targets(y: Any, names: Sequence[str] | None, name: str) -> Tensor:
    """A frame of one column is that column."""
    where = f"{name}, targets"
    if not is_frame(y):
        return _tensor(y, where)
    if len(y.columns) == 1:
        return _tensor(y, where).squeeze(1)
    return _shared(frame_array(y, names, where))


def _named(part: Any, names: Sequence[str] | None) -> tuple[str, ...] | None:
    return tuple(names) if is_frame(part) and names is not None else None


def _tensor(part: Any, where: str) -> Tensor:
    if isinstance(part, Tensor):
        return part
    return _shared(numbers_of(part, where))


def _shared(array: Array) -> Tensor:
    """The same memory, or a copy of what torch cannot share: read-only arrays, as pandas gives, and reversed ones."""
    return torch.as_tensor(np.require(native(array), requirements=["C", "W"]))
