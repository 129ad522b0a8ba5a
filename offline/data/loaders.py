"""The user's batches, validated: finite inputs of one shape, on the device, in chunks that fit in memory."""

import itertools
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from demur.service.bundle import InputPart
from demur.service.format.manifest_input import LARGEST

from ..network.inputs import check_parts, is_several, pack
from .stacking import stacking_problem

Batches = Iterable[Any]
MOST_NAMED = 3
SINGLE = "; of single examples, torch.utils.data.DataLoader(examples, 128) makes batches"


def check_loader(loader: Any, name: str) -> None:
    """`TypeError` for a loader that cannot be read several times: the job makes more than one pass."""
    if not isinstance(loader, Iterable):
        raise TypeError(f"{name}: found {type(loader).__name__}, expected an iterable of (inputs, targets)")
    if isinstance(loader, Iterator):
        raise TypeError(
            f"{name}: found an iterator ({type(loader).__name__}) that can be read only once, expected a DataLoader or "
            "a list of batches; wrap it in list(...)"
        )


def as_they_are(batches: Batches) -> Batches:
    """Nobody looks on."""
    return batches


def checked_batches(
    loader: Batches,
    name: str,
    device: torch.device,
    parts: Sequence[InputPart] | None = None,
    watched: Callable[[Batches], Batches] = as_they_are,
) -> Iterator[tuple[Tensor, Tensor]]:
    """(inputs (B, *shape) float32 or int64, targets (B, ...)) on the device; empty batches are left out.

    Several inputs are packed (`demur.offline.network.inputs`); parts: what they must be, None: any.
    watched: wraps the loader's own batches, for progress.

    Raises `ValueError` for anything but pairs of tensors, unequal lengths, another input shape than the first
    batch's, NaN or infinity in inputs or targets, or no example at all.
    """
    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    for number, batch in enumerate(watched(_read(loader, name))):
        inputs, targets = _pair(batch, f"{name}, batch {number}")
        if parts is not None and is_several(batch[0]):
            check_parts(batch[0], parts, f"{name}, batch {number}")
        if not len(inputs):
            continue
        if shape is not None and tuple(inputs.shape[1:]) != shape:
            raise ValueError(
                f"{name}, batch {number}: found inputs of shape {tuple(inputs.shape[1:])}, expected {shape} as before"
            )
        if dtype is not None and inputs.dtype != dtype:
            raise ValueError(
                f"{name}, batch {number}: found inputs of dtype {inputs.dtype}, expected {dtype} as before"
            )
        shape, dtype = tuple(inputs.shape[1:]), inputs.dtype
        yield inputs.to(device), targets.to(device)
    if shape is None:
        raise ValueError(f"{name}: found no example, expected at least one")


def _read(loader: Batches, name: str) -> Iterator[Any]:
    """The batches; `ValueError` for examples of a dataset that make no batch."""
    batches = iter(loader)
    for number in itertools.count():
        try:
            batch = next(batches)
        except StopIteration:
            return
        except (RuntimeError, TypeError, ValueError) as error:
            if (problem := stacking_problem(loader, error)) is None:
                raise
            raise ValueError(f"{name}, batch {number}: {problem}") from error
        yield batch


class Passes:
    """Counter of the examples in each pass over one loader.

    The stages' sums are consistent only if every pass gives the same data.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.examples: int | None = None
        """Examples in a whole pass; None until one has ended."""

    def count(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the pairs of one pass; a pass that ends early is not counted.

        Raises `ValueError` at the first batch too many, or at the end of a pass with too few.
        """
        examples = 0
        for inputs, targets in pairs:
            examples += len(inputs)
            if self.examples is not None and examples > self.examples:
                raise self._another_number(f"{examples} examples or more")
            yield inputs, targets
        if self.examples is not None and examples < self.examples:
            raise self._another_number(f"{examples} examples")
        self.examples = examples

    def _another_number(self, found: str) -> ValueError:
        return ValueError(
            f"{self.name}: found {found}, expected {self.examples} as in the first pass; a loader must give the same "
            "data each time: check its sampler, drop_last, and whether a stream was used up; or give list(loader)"
        )


def first_batch(loader: Batches, name: str, device: torch.device) -> tuple[Tensor, Tensor, Any]:
    """The first batch as `checked_batches` gives it, and the inputs as the loader gave them."""
    given: list[Any] = []

    def noted(batches: Batches) -> Iterator[Any]:
        for batch in batches:
            given.append(batch)
            yield batch

    inputs, targets = next(checked_batches(loader, name, device, watched=noted))
    return inputs, targets, given[-1][0]


def _pair(batch: Any, where: str) -> tuple[Tensor, Tensor]:
    if isinstance(batch, tuple | list) and len(batch) == 2 and is_several(batch[0]) and hasattr(batch[1], "__array__"):
        batch = pack(batch[0], where), batch[1]
    if not isinstance(batch, tuple | list) or len(batch) != 2 or not all(hasattr(item, "__array__") for item in batch):
        expected = f"expected a pair of tensors or arrays (inputs, targets){_remedy(batch)}"
        raise ValueError(f"{where}: found {_describe(batch)}, {expected}")
    inputs, targets = (item.detach() if isinstance(item, Tensor) else torch.as_tensor(native(item)) for item in batch)
    refuse_sparse(inputs, where)
    refuse_sparse(targets, where)
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


def native(array: Any) -> Any:
    """The array in a type that torch has: in the processor's byte order, and of at most 64 bits."""
    kind = np.dtype(getattr(array, "dtype", None)).newbyteorder("=") if isinstance(array, np.ndarray) else None
    return array if kind is None else array.astype(np.float64 if kind == np.longdouble else kind, copy=False)


def refuse_sparse(tensor: Tensor, where: str) -> None:
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


def in_chunks(inputs: Tensor, targets: Tensor, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The batch in pieces of at most `rows` examples."""
    return zip(torch.split(inputs, rows), torch.split(targets, rows), strict=True)
