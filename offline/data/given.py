"""What users give as data, as checked batches: pairs (X, y) of arrays, data frames or texts, datasets, loaders."""

import itertools
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from demur.service.bundle import InputPart, InputSpec
from demur.service.format.manifest_input import LARGEST
from demur.service.inference.frames import frame_array, frame_columns, is_frame, numbers_of
from demur.service.inference.texts import check_texts, texts_of

from ..network.inputs import named_inputs, packed
from ..network.model_copy import usable
from ..runtime.arrays import Array
from ..runtime.progress import Track, length_of, silent
from .description import check_is_spec
from .stacking import stacking_problem
from .texts import TextEncoder, texts_in

BATCH_SIZE = 128
MOST_NAMED = 3
SINGLE = "; of single examples, torch.utils.data.DataLoader(examples, 128) makes batches"
GIVE_TEXTS = "give (texts, labels), such as (list(texts), labels) or (frame['text'], frame['label'])"


@dataclass(frozen=True)
class Like:
    """What inputs must be, as in the data called `of`: shape and type of an example, and its parts where these are
    several; None: any."""

    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    parts: Sequence[InputPart] | None = None
    of: str = "train_loader"

    def check(self, inputs: Tensor, name: str) -> None:
        """`ValueError` for inputs (n, *shape) of another shape or type."""
        if self.shape is not None and (tuple(inputs.shape[1:]) != self.shape or inputs.dtype != self.dtype):
            raise ValueError(
                f"{name}: found inputs of shape {tuple(inputs.shape[1:])} and {inputs.dtype}, expected {self.shape} "
                f"and {self.dtype} as in {self.of}"
            )


ANY = Like()


@dataclass
class Given:
    """Examples that can be read several times. name: of the argument, for errors; columns: the names of a data frame's,
    or None; targets: those of a data frame of several targets; encoder: what made tokens of texts.

    examples: their number in a whole pass; None until one has ended. The sums of the stages are consistent only if each
    pass gives the same data.
    """

    name: str
    batches: Iterable[Any]
    columns: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    encoder: TextEncoder | None = None
    examples: int | None = field(default=None, init=False)

    @property
    def texts(self) -> Sequence[str]:
        """Those of the examples, where they are texts."""
        examples = getattr(self.batches, "dataset", None)
        return examples.texts if isinstance(examples, _Texts) else ()

    @property
    def dataset_size(self) -> int | None:
        """Examples of the dataset behind the batches, where there is one and it says so."""
        examples = getattr(self.batches, "dataset", None)
        batched = getattr(self.batches, "batch_sampler", examples) is None  # by the dataset itself
        return None if examples is None or batched else length_of(examples)

    def pairs(
        self, device: torch.device, like: Like = ANY, track: Track = silent, description: str = ""
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass: (inputs (B, *shape) float32 or int64, targets (B, ...)) on the device, without empty batches.

        Several inputs are packed (`demur.offline.network.inputs`). Raises `ValueError` for anything but pairs of
        tensors, unequal lengths, inputs unlike `like` or the first batch, NaN or infinity in inputs or targets, no
        example at all, and another number of them than an earlier pass had. One that ends early is not counted.
        """
        examples = 0
        for inputs, targets, _ in self._checked(
            device, like, track(self._read(), description, length_of(self.batches))
        ):
            examples += len(inputs)
            if self.examples is not None and examples > self.examples:
                raise self._another_number(f"{examples} examples or more")
            yield inputs, targets
        if self.examples is not None and examples < self.examples:
            raise self._another_number(f"{examples} examples")
        self.examples = examples

    def first(self, device: torch.device) -> tuple[Tensor, Tensor, Any]:
        """The first batch, as `pairs` has it, and its inputs as they were given."""
        return next(self._checked(device, ANY, self._read()))

    def some_inputs(self, most: int, device: torch.device, like: Like) -> Tensor:
        """The first inputs (n, *shape), at most so many; raises as `pairs`."""
        parts = list[Tensor]()
        for inputs, _ in self.pairs(device, like):
            parts.append(inputs)
            if sum(map(len, parts)) >= most:
                break
        return torch.cat(parts)[:most]

    def _read(self) -> Iterator[Any]:
        """The batches; `ValueError` for examples of a dataset that make no batch."""
        batches = iter(self.batches)
        for number in itertools.count():
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (RuntimeError, TypeError, ValueError) as error:
                if (problem := stacking_problem(self.batches, error)) is None:
                    raise
                raise ValueError(f"{self.name}, batch {number}: {problem}") from error
            yield batch

    def _checked(
        self, device: torch.device, like: Like, batches: Iterable[Any]
    ) -> Iterator[tuple[Tensor, Tensor, Any]]:
        shape: tuple[int, ...] | None = None
        dtype: torch.dtype | None = None
        for number, batch in enumerate(batches):
            where = f"{self.name}, batch {number}"
            inputs, targets = _pair(batch, where, like.parts)
            if not len(inputs):
                continue
            if shape is None:
                like.check(inputs, self.name)
            elif tuple(inputs.shape[1:]) != shape:
                raise ValueError(
                    f"{where}: found inputs of shape {tuple(inputs.shape[1:])}, expected {shape} as before: pad or cut "
                    "all of them to one length"
                )
            elif inputs.dtype != dtype:
                raise ValueError(f"{where}: found inputs of dtype {inputs.dtype}, expected {dtype} as before")
            shape, dtype = tuple(inputs.shape[1:]), inputs.dtype
            yield inputs.to(device), targets.to(device), batch[0]
        if shape is None and self.examples:
            raise self._another_number("no example")
        if shape is None:
            raise ValueError(f"{self.name}: found no example, expected at least one")

    def _another_number(self, found: str) -> ValueError:
        return ValueError(
            f"{self.name}: found {found}, expected {self.examples} as in the first pass; a loader must give the same "
            "data each time: check its sampler, drop_last, and whether a stream was used up; or give list(loader)"
        )


@dataclass(frozen=True)
class AllGiven:
    """The data of a fit: what the network was trained on, what was held out, and inputs unlike both."""

    train: Given
    held_out: Given | None = None
    foreign: Given | None = None


def all_given(
    train: Any,
    held_out: Any,
    foreign: Any,
    model: object,
    tokenizer: Any,
    spec: InputSpec | None,
    dry: bool = False,
) -> AllGiven:
    """The data of a fit, with the columns, targets and tokens of the training data; foreign data may be None, and of a
    dry run the held-out data.

    spec: with names and order of a data frame's columns, None: as in the training data. tokenizer: of texts; it fits
    what the model takes. Raises as `given_data`, and as `TextEncoder.of`.
    """
    check_is_spec(spec)
    columns = None if spec is None else spec.feature_names
    encoder = None
    if tokenizer is not None and (texts := texts_in(train)) is not None:
        encoder = TextEncoder.of(tokenizer, [*texts, *(texts_in(held_out) or ())], usable(model))
    first = given_data(train, "train_loader", columns, encoder=encoder)
    return AllGiven(
        first,
        None if dry and held_out is None else given_like(first, held_out, "calibration_loader", columns),
        None if foreign is None else given_foreign(foreign, "foreign_loader", columns or first.columns, encoder),
    )


def given_data(
    data: Any,
    name: str,
    columns: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    encoder: TextEncoder | None = None,
) -> Given:
    """`data` as batches; a data frame's columns are put in the order of `columns`, or stay in their own for None; the
    same of several targets.

    A pair of tensors, arrays or data frames, and a dataset of examples, are cut into batches in the given order;
    anything else must be batches, and passes as it is. name: of the argument, for errors. encoder: what makes tokens of
    texts, of a pair too; None: texts are refused. Raises `ValueError` for
    columns that are missing or hold no numbers, for unequal lengths, and for inputs alone; `TypeError` for what gives
    no batches.
    """
    if isinstance(data, Given):
        return data
    targets = targets or _targets_of(data, name)
    if (texts := texts_in(data)) is not None:
        return _given_texts(texts, data[1], name, targets, encoder)
    _refuse_other_texts(data, name)
    _refuse_alone(data, name)
    _refuse_sparse(data, name)
    if _is_pair(data):
        x, y = data
        return _given_pair(x, y, name, columns, targets)
    several = named_inputs(data[0], name) if _pairs_with_array(data) else None
    if several is not None:
        examples = _Several(several, isinstance(data[0], Mapping), _targets(data[1], targets, name), name)
        return Given(name, DataLoader(examples, batch_size=BATCH_SIZE), targets=_named(data[1], targets))
    if isinstance(data, tuple | list) and len(data) == 2 and _is_array(data[0]) and data[1] is None:
        raise ValueError(f"{name}: found inputs and None, expected inputs and targets: the pair (X, y)")
    if isinstance(data, Dataset):
        if not isinstance(data, IterableDataset) and not hasattr(data, "__len__"):
            raise TypeError(f"{name}: found {type(data).__name__} without a length; give it a method __len__")
        return Given(name, DataLoader(data, batch_size=BATCH_SIZE))
    _check_loader(data, name)
    return Given(name, data)


def given_foreign(
    data: Any, name: str, columns: Sequence[str] | None = None, encoder: TextEncoder | None = None
) -> Given:
    """The same of inputs whose targets nobody reads: of a pair they may be anything, and texts may come without any."""
    pair = isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data[1], str)
    inputs = texts_of(data) if not pair else data[0] if _is_array(data[0]) and texts_in(data) is None else None
    return given_data(data if inputs is None else (inputs, np.zeros(len(inputs))), name, columns, encoder=encoder)


def given_like(train: Given, data: Any, name: str, columns: Sequence[str] | None = None) -> Given:
    """`data` as batches, with the columns and targets of the training data, or these columns.

    Raises as `given_data`, and `ValueError` for columns with names where the training data have none to order them by.
    """
    found = given_data(data, name, columns or train.columns, train.targets, train.encoder)
    if columns is None and train.columns is None and found.columns is not None:
        raise ValueError(
            f"{name}: found columns with names, and training data without; give both as data frames, or both as arrays"
        )
    return found


def _check_loader(loader: Any, name: str) -> None:
    """`TypeError` for a loader that cannot be read several times: the job makes more than one pass."""
    if not isinstance(loader, Iterable):
        raise TypeError(f"{name}: found {type(loader).__name__}, expected an iterable of (inputs, targets)")
    if isinstance(loader, Iterator):
        raise TypeError(
            f"{name}: found an iterator ({type(loader).__name__}) that can be read only once, expected a DataLoader or "
            "a list of batches; wrap it in list(...)"
        )


def _given_texts(
    texts: Sequence[Any], y: Any, name: str, targets: Sequence[str] | None, encoder: TextEncoder | None
) -> Given:
    if encoder is None:
        raise ValueError(
            f"{name}: found texts, expected numbers; of texts, all data are pairs (texts, labels), with a tokenizer: "
            "fit_bundle(..., tokenizer=tokenizer), or tokenizer in a recipe"
        )
    values = y if _is_array(y) else list(y)
    examples = _Texts(encoder, texts, _targets(values, targets, name), name)
    return Given(name, DataLoader(examples, batch_size=BATCH_SIZE), targets=_named(y, targets), encoder=encoder)


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
            _refuse_other_layouts(part, name)


def _given_pair(x: Any, y: Any, name: str, columns: Sequence[str] | None, targets: Sequence[str] | None) -> Given:
    if is_frame(x) and columns is None:
        columns = frame_columns(x, name)
    inputs, values = _inputs(x, columns, name), _targets(y, targets, name)
    if len(inputs) != len(values):
        raise ValueError(f"{name}: found {len(inputs)} inputs and {len(values)} targets, expected as many of each")
    _check_order(x, y, name)
    batches = DataLoader(TensorDataset(inputs, values), batch_size=BATCH_SIZE)
    return Given(name, batches, _named(x, columns), _named(y, targets))


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


class _Texts(Dataset[Any]):
    """Texts and their targets, encoded anew whenever they are read."""

    def __init__(self, encoder: TextEncoder, texts: Sequence[Any], targets: Tensor, name: str) -> None:
        check_texts(texts, f"{name}, texts")
        if len(texts) != len(targets):
            raise ValueError(f"{name}: found {len(texts)} texts and {len(targets)} targets, expected as many of each")
        self._encoder, self._texts, self._targets, self._name = encoder, texts, targets, name

    @property
    def texts(self) -> Sequence[str]:
        """As they were given."""
        return self._texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, place: int) -> tuple[Any, Tensor]:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: Sequence[int]) -> list[tuple[Any, Tensor]]:
        """Several at once, as `DataLoader` asks for them."""
        found = self._encoder.encoded([self._texts[place] for place in places], f"{self._name}, texts")
        targets = [self._targets[place] for place in places]
        if isinstance(found, Tensor):
            return list(zip(found, targets, strict=True))
        rows = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
        return list(zip(rows, targets, strict=True))


class _Several(Dataset[Any]):
    """Examples of several inputs by name, or else in a tuple, and their targets."""

    def __init__(self, inputs: Mapping[str, Any], by_name: bool, targets: Tensor, name: str) -> None:
        self._inputs = {key: _tensor(value, f"{name}, input {key!r}") for key, value in inputs.items()}
        self._by_name, self._targets = by_name, targets
        lengths = {key: len(value) for key, value in self._inputs.items()}
        if set(lengths.values()) != {len(targets)}:
            if len(lengths) == len(targets) and not by_name:
                raise ValueError(f"{name}: found an array for each example, expected one of all: give numpy.stack(X)")
            raise ValueError(
                f"{name}: found inputs of {lengths!s:.200} examples, {len(targets)} targets, expected as many of each"
            )

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, place: int) -> tuple[Any, Tensor]:
        found = {key: value[place] for key, value in self._inputs.items()}
        return (found if self._by_name else tuple(found.values())), self._targets[place]


def _is_pair(data: Any) -> bool:
    return _pairs_with_array(data) and _is_array(data[0])


def _pairs_with_array(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2 and _is_array(data[1])


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


def _targets_of(data: Any, name: str) -> Sequence[str] | None:
    """The names of several targets in a data frame."""
    several = _pairs_with_array(data) and is_frame(data[1]) and len(data[1].columns) > 1
    return frame_columns(data[1], f"{name}, targets") if several else None


def _named(part: Any, names: Sequence[str] | None) -> tuple[str, ...] | None:
    return tuple(names) if is_frame(part) and names is not None else None


def _tensor(part: Any, where: str) -> Tensor:
    if isinstance(part, Tensor):
        return part
    return _shared(numbers_of(part, where))


def _shared(array: Array) -> Tensor:
    """The same memory, or a copy of what torch cannot share: read-only arrays, as pandas gives, and reversed ones."""
    return torch.as_tensor(np.require(_native(array), requirements=["C", "W"]))


def _pair(batch: Any, where: str, parts: Sequence[InputPart] | None) -> tuple[Tensor, Tensor]:
    if isinstance(batch, tuple | list) and len(batch) == 2 and hasattr(batch[1], "__array__"):
        batch = packed(batch[0], where, parts), batch[1]
    if not isinstance(batch, tuple | list) or len(batch) != 2 or not all(hasattr(item, "__array__") for item in batch):
        expected = f"expected a pair of tensors or arrays (inputs, targets){_remedy(batch)}"
        raise ValueError(f"{where}: found {_describe(batch)}, {expected}")
    inputs, targets = (item.detach() if isinstance(item, Tensor) else torch.as_tensor(_native(item)) for item in batch)
    _refuse_other_layouts(inputs, where)
    _refuse_other_layouts(targets, where)
    if inputs.dim() < 1 or targets.dim() < 1 or len(inputs) != len(targets):
        raise ValueError(
            f"{where}: found inputs {tuple(inputs.shape)} and targets {tuple(targets.shape)}, expected equal lengths"
            + (SINGLE if targets.dim() < 1 else "")
        )
    _refuse_not_finite(targets, "targets", where)
    if inputs.is_floating_point():
        inputs = inputs.float()
        _refuse_not_finite(inputs, "inputs", where)
    elif inputs.dtype in (torch.int64, torch.int32, torch.int16):
        inputs = inputs.long()
    else:
        example = "x.float() / 255 of images" if inputs.dtype == torch.uint8 else "x.float()"
        raise ValueError(
            f"{where}: found inputs of dtype {inputs.dtype}, expected floating point (or integer tokens); give floats "
            f"such as {example}"
        )
    return inputs, targets


def _native(array: Any) -> Any:
    """The array in a type that torch has: in the processor's byte order, and of at most 64 bits."""
    kind = np.dtype(getattr(array, "dtype", None)).newbyteorder("=") if isinstance(array, np.ndarray) else None
    return array if kind is None else array.astype(np.float64 if kind == np.longdouble else kind, copy=False)


def _refuse_other_layouts(tensor: Tensor, where: str) -> None:
    """`ValueError` for a tensor that is not stored whole."""
    if tensor.is_nested or tensor.is_quantized:
        found = "nested" if tensor.is_nested else "quantised"
        raise ValueError(f"{where}: found a {found} tensor, expected a plain one of one shape, in float32")
    if tensor.layout != torch.strided:
        raise ValueError(f"{where}: found a tensor of layout {tensor.layout}, expected a dense one; give x.to_dense()")
    if tensor.is_meta:
        raise ValueError(f"{where}: found a tensor on the device 'meta', expected one with values")


def _refuse_not_finite(tensor: Tensor, what: str, where: str) -> None:
    usable = tensor.abs() <= LARGEST if tensor.is_floating_point() else torch.isfinite(tensor)
    if not bool(usable.all()):
        place = [int(index) for index in (~usable).nonzero()[0]]
        value = tensor[tuple(place)]
        found = f"{float(value):.3g}" if bool(torch.isfinite(value)) else "NaN or infinity"
        expected = f"numbers of at most {LARGEST:g}" if bool(torch.isfinite(value)) else "finite numbers"
        entry = f", entry {place[1:]}" if place[1:] else ""
        raise ValueError(
            f"{where}: found {found} in the {what}, first in example {place[0]}{entry}; expected {expected}"
        )


def _many(batch: Any) -> bool:
    return isinstance(batch, tuple | list) and len(batch) > 2 and all(hasattr(item, "__array__") for item in batch)


def _remedy(batch: Any) -> str:
    """What to do about a batch that is no pair."""
    if _holds_texts(batch):
        return "; of texts, give the pair (texts, labels), two lists or columns, with the tokenizer, and no loader"
    if _many(batch):
        return "; give several inputs as ((a, b), targets)"
    if isinstance(batch, Mapping):
        return "; make pairs of them, such as (example[name], example[target]) in the dataset"
    targets = batch[1] if isinstance(batch, tuple | list) and len(batch) == 2 else None
    if isinstance(targets, numbers.Real):
        return SINGLE
    if isinstance(targets, str) or (isinstance(targets, tuple | list) and isinstance(next(iter(targets), 0), str)):
        return "; encode words as class numbers, in the order of class_names"
    return ""


def _holds_texts(batch: Any) -> bool:
    """Whether a batch or an example has a text, or a list of texts, in place of its inputs."""
    inputs = next(iter(batch.values()), None) if isinstance(batch, Mapping) else batch
    if isinstance(inputs, tuple | list) and not isinstance(batch, Mapping):
        inputs = next(iter(inputs), None)
    first = next(iter(inputs), None) if isinstance(inputs, tuple | list) else inputs
    return isinstance(first, str)


def _describe(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"{type(batch).__name__} of {', '.join(map(repr, list(batch)[:MOST_NAMED]))}"
    if isinstance(batch, tuple | list):
        kinds = [type(item).__name__ for item in batch[:MOST_NAMED]]
        more = [f"... ({len(batch)} entries)"] if len(batch) > MOST_NAMED else []
        return f"{type(batch).__name__} of {', '.join(kinds + more) or 'nothing'}"
    return type(batch).__name__
