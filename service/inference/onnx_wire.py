"""Protobuf's wire format: the fields of a message, without a schema.

The service reads a few lists of an ONNX model before onnxruntime does, without the `onnx` package. Bytes that two
readers could understand differently are refused.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
MAX_TAG = 2**32 - 1  # onnxruntime's reader keeps 32 bits

Message = bytes | memoryview
# Number, wire type, content (of BYTES: without its length; of VARINT: empty), and the whole field as it stands.
Field = tuple[int, int, Message, Message]


class WireError(ValueError):
    """The bytes are not protobuf."""


def fields(message: Message) -> Iterator[Field]:
    """The fields of a message in order; of a memoryview without copies. Raises `WireError`."""
    position = 0
    while position < len(message):
        start = position
        tag, position = varint(message, position)
        number, kind = tag >> 3, tag & 7
        if tag > MAX_TAG or not number:
            raise WireError(f"found the tag {tag} at byte {start}, expected a field's")
        if kind == VARINT:
            _, position = varint(message, position)
            yield number, kind, b"", message[start:position]
            continue
        size = FIXED_SIZES.get(kind)
        if kind == BYTES:
            size, position = varint(message, position)
        if size is None or position + size > len(message):
            raise WireError(f"found a field of wire type {kind} at byte {start} that the message does not hold")
        yield number, kind, message[position : position + size], message[start : position + size]
        position += size


def varint(message: Message, position: int) -> tuple[int, int]:
    """The number that starts at `position`, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise WireError(f"found no whole number at byte {position}")
