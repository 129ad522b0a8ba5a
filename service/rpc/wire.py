"""How many parts a message has, counted in its bytes before it is parsed: each takes some hundred bytes of memory."""

from collections.abc import Mapping
from typing import Any

MOST_PARTS = 10_000
VARINT, BYTES, SIZES = 0, 2, {1: 8, 5: 4}  # wire types, and those of a fixed size
# Numbers of the fields of a ModelInferRequest that hold messages, and those in them.
Nested = Mapping[int, Any]
PARAMETERS: Nested = {2: {}}
INFER_REQUEST: Nested = {4: PARAMETERS, 5: {4: PARAMETERS, 5: {}}, 6: {2: PARAMETERS}}


class MalformedMessage(ValueError):
    """The bytes are no message, or one of too many parts."""


def check_parts(data: bytes, nested: Nested = INFER_REQUEST) -> None:
    """`MalformedMessage` for more than `MOST_PARTS` fields, in the message and in those `nested` in it."""
    view, left = memoryview(data), MOST_PARTS
    waiting = [(0, len(view), nested)]
    while waiting:
        at, end, known = waiting.pop()
        while at < end:
            left -= 1
            if left < 0:
                raise MalformedMessage(f"found more than {MOST_PARTS} parts")
            number, begin, at = _field(view, at, end)
            if number in known:
                waiting.append((begin, at, known[number]))


def _field(view: memoryview, at: int, end: int) -> tuple[int, int, int]:
    """The field's number, and where its value begins and ends."""
    tag, at = _varint(view, at, end)
    number, kind = tag >> 3, tag & 7
    begin, stop = at, at + SIZES.get(kind, 0)
    if kind == VARINT:
        _, stop = _varint(view, at, end)
    elif kind == BYTES:
        size, begin = _varint(view, at, end)
        stop = begin + size
    elif kind not in SIZES:
        raise MalformedMessage(f"found the wire type {kind}, expected a message")
    if stop > end:
        raise MalformedMessage("found half a message")
    return number, begin, stop


def _varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number of up to ten bytes, and where it ends."""
    value = shift = 0
    for place in range(at, min(end, at + 10)):
        byte = view[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise MalformedMessage("found half a message")
