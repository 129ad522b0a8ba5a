"""One input tensor of a request: its description and the place of its data. Nothing is converted yet."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

from ..codec.arrays import InputTooLarge
from . import datatypes
from .errors import RequestError
from .parsing import shown
from .schemas import InputTensor


@dataclass(frozen=True)
class Tensor:
    """`data` are the JSON values, or None where the elements are the bytes `start` to `stop` of `body`."""

    place: str
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[Any] | None
    body: bytes
    start: int
    stop: int

    @property
    def count(self) -> int:
        """The number of elements in the shape."""
        return math.prod(self.shape)

    @property
    def shape_text(self) -> str:
        """The shape, for errors."""
        return f"shape {list(self.shape)!s:.100}"

    def array(self) -> datatypes.Array:
        """The elements in their shape, of any datatype but BYTES."""
        if self.data is None:
            flat = datatypes.from_bytes(self.datatype, self.body, self.start, self.count)
        else:
            flat = datatypes.from_values(self.datatype, self.values(), f"{self.place}.data")
        return flat.reshape(self.shape)

    def values(self) -> list[Any]:
        """The JSON values as a flat list; nested lists must match the shape."""
        assert self.data is not None
        rows = self.data
        if rows and type(rows[0]) is list:
            rows = [rows]
            for size in self.shape:
                self._check_rows(rows, size)
                rows = list(itertools.chain.from_iterable(rows))
        if len(rows) != self.count:
            expected = f"{shown(self.count)} for the {self.shape_text}"
            raise RequestError(f"{self.place}.data", f"{len(rows)} values", expected)
        return rows

    def elements(self, most: int) -> list[bytes]:
        """The elements of a binary BYTES tensor; `InputTooLarge` for more than `most`."""
        if self.count > most:
            raise InputTooLarge(self.place, f"{shown(self.count)} elements", f"at most {most} in one request")
        return datatypes.split_elements(self.body, self.start, self.stop, self.count, self.place)

    def _check_rows(self, rows: list[Any], size: int) -> None:
        if set(map(type, rows)) - {list} or set(map(len, rows)) - {size}:
            expected = f"full rows as the {self.shape_text} says, or one flat list"
            raise RequestError(f"{self.place}.data", "rows of other lengths", expected)


def read_tensor(entry: InputTensor, place: str, body: bytes, start: int) -> Tensor:
    """The tensor that `entry` describes; its binary data, if any, begin at `start` of the body.

    Sizes are compared with the body before anything is sliced.
    """
    size = None if entry.parameters is None else entry.parameters.binary_data_size
    if (size is None) == (entry.data is None):
        found = "neither 'data' nor 'parameters.binary_data_size'" if size is None else "both"
        raise RequestError(f"{place}.data", found, "one of 'data' and 'parameters.binary_data_size'")
    stop = start + (size or 0)
    tensor = Tensor(place, entry.name, entry.datatype, tuple(entry.shape), entry.data, body, start, stop)
    if size is not None:
        _check_size(tensor, size, f"{place}.parameters.binary_data_size")
    return tensor


def _check_size(tensor: Tensor, size: int, place: str) -> None:
    left = len(tensor.body) - tensor.start
    if not 0 <= size <= left:
        raise RequestError(place, shown(size), f"at most the {left} bytes that follow the JSON")
    if tensor.datatype == datatypes.BYTES:
        return
    expected = tensor.count * datatypes.item_size(tensor.datatype)
    if size != expected:
        raise RequestError(
            place, f"{size} bytes", f"{shown(expected)} for the {tensor.shape_text} of {tensor.datatype}"
        )
