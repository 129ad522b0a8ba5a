"""BYTES tensors: each element is a little-endian u32 length, followed by that many bytes."""

import struct
from collections.abc import Iterable

from probity.service.oip.errors import RequestError

LENGTH = struct.Struct("<I")


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


def join_elements(elements: Iterable[bytes]) -> bytes:
    """The elements as a binary tensor."""
    return b"".join(part for element in elements for part in (LENGTH.pack(len(element)), element))
