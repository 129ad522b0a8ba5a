"""Values over a stream socket: the number of parts, their lengths, a pickle, and the arrays as its buffers.

Both ends are processes of this service, on a socket pair that no other process holds.
"""

import pickle
import struct
from collections.abc import Sequence
from typing import Any

SIZE = struct.Struct("<Q")


def pack(value: Any) -> list[memoryview]:
    """The parts to send, in order; arrays are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    return [memoryview(SIZE.pack(len(parts)) + sizes_to_bytes([part.nbytes for part in parts])), *parts]


def sizes_to_bytes(sizes: Sequence[int]) -> bytes:
    """The lengths of the parts."""
    return b"".join(map(SIZE.pack, sizes))


def sizes_from_bytes(data: bytes | bytearray) -> list[int]:
    """The lengths of the parts."""
    return [size for (size,) in SIZE.iter_unpack(data)]


def unpack(parts: Sequence[bytearray]) -> Any:
    """The value; its arrays share the parts' memory."""
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301  only our own processes write here
