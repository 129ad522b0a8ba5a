"""The protocol's datatypes <-> NumPy: little-endian bytes and JSON lists, row by row.

BF16, the upper half of a float32, is float32 here. BYTES is a list of bytes objects, each of which follows its
little-endian u32 length.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import RequestError
from .parsing import shown

Array = npt.NDArray[Any]
BF16, BOOL, BYTES = "BF16", "BOOL", "BYTES"
NUMPY: dict[str, np.dtype[Any]] = {
    BOOL: np.dtype(np.bool_),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    BF16: np.dtype("<f4"),
}
NAMES = (*NUMPY, BYTES)
HALF = np.uint32(16)
LENGTH = struct.Struct("<I")  # of an element of BYTES
TYPES: dict[str, set[type]] = {"b": {bool}, "u": {int}, "i": {int}, "f": {int, float}}


def item_size(datatype: str) -> int:
    """Bytes of one element, of any datatype but BYTES."""
    return 2 if datatype == BF16 else NUMPY[datatype].itemsize


def from_bytes(datatype: str, data: bytes, start: int, count: int) -> Array:
    """`count` elements from `data[start:]`, flat, read-only and where possible not copied."""
    if datatype == BF16:
        halves = np.frombuffer(data, "<u2", count, start)
        whole: Array = (halves.astype("<u4") << HALF).view("<f4")
        return whole
    if datatype == BOOL:  # any byte but 0 is true; NumPy's own booleans hold nothing but 0 and 1
        return np.asarray(np.frombuffer(data, np.uint8, count, start) != 0)
    array = np.frombuffer(data, NUMPY[datatype], count, start)
    return array if array.flags.aligned else array.copy()


def to_bytes(datatype: str, array: Array) -> bytes:
    """The elements, row by row; BF16 drops the lower half, as the protocol's clients do."""
    values = array
    if values.dtype != NUMPY[datatype]:
        with np.errstate(over="ignore"):
            values = values.astype(NUMPY[datatype])
    if datatype == BF16:
        return (np.ascontiguousarray(values).view("<u4") >> HALF).astype("<u2").tobytes()
    return values.tobytes()


def from_values(datatype: str, values: Sequence[Any], place: str) -> Array:
    """JSON numbers (or true and false for BOOL) -> a flat array, with types and ranges checked.

    A number beyond a floating-point datatype becomes infinite; the caller refuses those.
    """
    dtype = NUMPY[datatype]
    allowed = TYPES[dtype.kind]
    if not set(map(type, values)) <= allowed:
        raise _odd_value(values, allowed, place)
    if dtype.kind in "ui" and values:
        _check_range(values, datatype, place)
    if dtype.kind != "f":
        return np.array(values, dtype)
    try:
        wide = np.array(values, np.float64)
    except OverflowError:
        raise RequestError(place, "a huge whole number", f"numbers that fit {datatype}") from None
    with np.errstate(over="ignore"):
        array = wide.astype(dtype)
    return from_bytes(BF16, to_bytes(BF16, array), 0, len(array)) if datatype == BF16 else array


def to_values(array: Array) -> list[Any]:
    """A flat JSON list; a number that is not finite is null, since JSON has no infinity."""
    flat = array.reshape(-1)
    if array.dtype.kind == "f" and not np.isfinite(flat).all():
        return [value if finite else None for value, finite in zip(flat.tolist(), np.isfinite(flat), strict=True)]
    values: list[Any] = flat.tolist()
    return values


def split_elements(data: bytes, start: int, stop: int, count: int, place: str) -> list[bytes]:
    """The `count` elements that fill `data[start:stop]` exactly."""
    elements: list[bytes] = []
    at = start
    while at < stop:
        begin = at + LENGTH.size
        if begin > stop:
            raise RequestError(place, f"{stop - at} bytes after element {len(elements) - 1}", "a length of 4 bytes")
        (size,) = LENGTH.unpack_from(data, at)
        at = begin + size
        if at > stop:
            found = f"element {len(elements)} of {size} bytes where {stop - begin} are left"
            raise RequestError(place, found, "lengths that fit binary_data_size")
        if len(elements) == count:
            raise RequestError(place, f"more than {count} elements", f"{count}, as the shape says")
        elements.append(data[begin:at])
    if len(elements) != count:
        raise RequestError(place, f"{len(elements)} elements", f"{count}, as the shape says")
    return elements


def _check_range(values: Sequence[int], datatype: str, place: str) -> None:
    limits = np.iinfo(NUMPY[datatype])
    for value in (min(values), max(values)):
        if not limits.min <= value <= limits.max:
            expected = f"whole numbers from {limits.min} to {limits.max} ({datatype})"
            raise RequestError(f"{place}[{values.index(value)}]", shown(value), expected)


def _odd_value(values: Sequence[Any], allowed: set[type], place: str) -> RequestError:
    i, odd = next((i, value) for i, value in enumerate(values) if type(value) not in allowed)
    expected = "a number" if float in allowed else "a whole number" if int in allowed else "true or false"
    return RequestError(f"{place}[{i}]", shown(odd), expected)
