"""Numbers that a client sent -> one array (B, *input_shape), or an error that names the place."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..format.manifest_input import InputSpec
from ..format.text import suggestion
from ..inference.frames import places_alike
from ..inference.parts import PartsError, by_parts, packed

Array = npt.NDArray[Any]
MAX_DEPTH = 32  # NumPy itself ends at 64
MAX_INT_BITS = 10_000  # Python refuses to write longer integers in decimal
PLACE = re.compile(r"(inputs\[\d+\])\[(\d+)\]")  # an entry of an example


class InputError(ValueError):
    """A value the network cannot take: which field, what was found, what was expected."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        self.field, self.found, self.expected = field, found, expected
        super().__init__(f"{field}: found {found}, expected {expected}")

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, str, str]]:
        return type(self), (self.field, self.found, self.expected)


class InputTooLarge(InputError):
    """An input over one of the operator's limits."""


@dataclass(frozen=True)
class InputLimits:
    """Of one request: examples, pixels of one image and of all, bytes as the network takes them."""

    max_rows: int
    max_pixels: int
    max_total_pixels: int = 64 * 2**20
    max_bytes: int = 64 * 2**20

    def rows(self, spec: InputSpec) -> int:
        """Most examples of this kind: as many as may be asked for and fit into the memory, at least one."""
        size = np.dtype(spec.dtype).itemsize * math.prod(spec.shape)
        return max(1, min(self.max_rows, self.max_bytes // max(1, size)))


def array_from_named(values: Mapping[str, Any], spec: InputSpec, max_rows: int) -> Array:
    """Several inputs by name, nested JSON lists each, as the network takes them together: (B, F) float32."""
    if spec.parts is None:
        raise InputError("inputs", "an object", "a list: the model has one input; of rows by name, [{...}, {...}]")
    try:
        values, arrays = by_parts(values, spec.parts, "inputs"), {}
        for part in spec.parts:
            field = f"inputs.{part.name}"
            if not isinstance(values[part.name], list):
                raise InputError(field, f"{values[part.name]!r:.60}", "a list of numbers")
            entries = _as_numbers(values[part.name]) if part.dtype == "bool" else values[part.name]
            arrays[part.name] = array_from_json(entries, part.alone, max_rows, field)
        return packed(arrays, spec.parts, "inputs")
    except PartsError as error:
        raise InputError(error.field, error.found, error.expected) from None


def _as_numbers(values: Any, depth: int = MAX_DEPTH) -> Any:
    """The same with 1 and 0 for true and false, in lists up to `depth` deep."""
    if isinstance(values, list) and depth:
        return [_as_numbers(value, depth - 1) for value in values]
    return int(values) if isinstance(values, bool) else values


def array_from_json(values: Sequence[Any], spec: InputSpec, max_rows: int, field: str = "inputs") -> Array:
    """Nested JSON lists, shape (B, *input_shape) or one example (*input_shape), as the network takes them.

    Or objects, one an example, whose fields are called like the features; other fields are left out.

    Every entry's type is checked before NumPy sees it: NumPy would read true as 1, and would allocate the length of
    the longest string for every entry.
    """
    if not values:
        raise InputError(field, "an empty list", "at least one example")
    if isinstance(values[0], dict):
        return _array_from_objects(values, spec, max_rows)
    if isinstance(values[0], list):
        check_rows(field, len(values), max(max_rows, *spec.shape[:1], 1))  # before each row is checked
    return _array_from_lists(values, spec, max_rows, field)


def _array_from_objects(objects: Sequence[Any], spec: InputSpec, max_rows: int) -> Array:
    names = spec.feature_names
    if names is None:
        raise InputError("inputs[0]", "an object", "a list of numbers: the model has no feature names")
    check_rows("inputs", len(objects), max_rows)
    rows = []
    for i, found in enumerate(objects):
        if type(found) is not dict:
            raise InputError(f"inputs[{i}]", f"{found!r:.60}", "an object, as before it")
        try:
            rows.append([found[name] for name in names])
            continue
        except KeyError:  # some names stand otherwise there, or nowhere
            values, places = list(found.values()), places_alike(list(found), names)
        missing = next((name for name, alike in zip(names, places, strict=True) if len(alike) != 1), None)
        if missing is not None:
            raise InputError(
                f"inputs[{i}].{missing:.80}",
                f"nothing{suggestion(missing, [name for name in found if name not in names])}",
                "a number",
            )
        rows.append([values[place] for (place,) in places])
    try:
        return _array_from_lists(rows, spec, max_rows, "inputs")
    except InputError as error:
        place = PLACE.fullmatch(error.field)
        field = error.field if place is None else f"{place[1]}.{names[int(place[2])]:.80}"
        raise InputError(field, error.found, error.expected) from None


def _array_from_lists(values: Sequence[Any], spec: InputSpec, max_rows: int, field: str) -> Array:
    integers = spec.dtype == "int64"
    _check_entries(values, field, {int} if integers else {int, float}, MAX_DEPTH)
    try:
        array = np.array(values, np.int64 if integers else np.float64)
    except OverflowError:
        raise _too_large(values, integers, field) from None
    except ValueError:
        raise InputError(field, "rows of different lengths", "a full array") from None
    return array_from_array(array, spec, max_rows, field)


def array_from_array(array: Array, spec: InputSpec, max_rows: int, field: str = "inputs") -> Array:
    """An array (B, *input_shape), or one example (*input_shape), of numbers that the input's dtype can hold."""
    kinds = "iu" if spec.dtype == "int64" else "iuf"
    if array.dtype.kind not in kinds:
        expected = "whole numbers" if spec.dtype == "int64" else "whole or floating-point numbers"
        raise InputError(field, f"an array of {array.dtype}", expected)
    batch = array[None] if array.shape == spec.shape else array
    if batch.shape[1:] != spec.shape or not len(batch):
        expected = f"(batch, {', '.join(map(str, spec.shape))})" if spec.shape else "(batch,)"
        raise InputError(field, f"shape {array.shape}", f"shape {expected}, or one example without the batch")
    check_rows(field, len(batch), max_rows)
    if array.dtype.kind == "u" and spec.dtype == "int64" and (batch > np.uint64(2**63 - 1)).any():
        raise InputError(field, f"{batch.max()}", "numbers that fit int64")
    with np.errstate(over="ignore"):
        batch = np.ascontiguousarray(batch.astype(spec.dtype, copy=False))
    check_finite(batch, field)
    return batch


def _check_entries(values: Sequence[Any], place: str, allowed: set[type], depth: int) -> None:
    """Refuse anything but numbers in lists up to `depth` deep; the error names the first place."""
    kinds = set(map(type, values))
    if kinds <= allowed:
        return
    if kinds == {list}:
        if depth <= 1:
            raise InputError(place, "lists nested too deep", "a number")
        for i, row in enumerate(values):
            _check_entries(row, f"{place}[{i}]", allowed, depth - 1)
        return
    if list in kinds and kinds - {list} <= allowed:
        raise InputError(place, "rows of different lengths", "a full array")
    i, odd = next((i, value) for i, value in enumerate(values) if type(value) not in allowed | {list})
    what = "a whole number" if allowed == {int} else "a number"
    raise InputError(f"{place}[{i}]", f"{odd!r:.60}", what)


def _too_large(values: Sequence[Any], integers: bool, field: str) -> InputError:
    """The error for the first number that no float64 (or int64) can hold."""
    limit = 2**63 if integers else 2**1023
    stack: list[tuple[str, Any]] = [(field, values)]
    while stack:
        place, item = stack.pop()
        if isinstance(item, list):
            stack.extend((f"{place}[{i}]", child) for i, child in reversed(list(enumerate(item))))
        elif isinstance(item, int) and not -limit <= item < limit:
            found = f"{item!r:.60}" if item.bit_length() < MAX_INT_BITS else "a huge whole number"
            return InputError(place, found, "a number that fits 64 bits")
    return InputError(field, "a number that is too large", "numbers that fit 64 bits")


def check_rows(field: str, rows: int, max_rows: int) -> None:
    """Refuse more examples than the operator allows in one request."""
    if rows > max_rows:
        raise InputTooLarge(field, f"{rows} examples", f"at most {max_rows} in one request")


def check_finite(batch: Array, field: str = "inputs") -> None:
    """Refuse NaN, infinity and numbers that overflow float32; the error names the first place."""
    finite = np.isfinite(batch)
    if not finite.all():
        index = tuple(int(i) for i in np.argwhere(~finite)[0])
        place = "".join(f"[{i}]" for i in index)
        raise InputError(f"{field}{place}", f"{batch[index]}", "a finite number within float32's range")
