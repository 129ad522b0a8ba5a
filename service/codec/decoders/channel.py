"""Messages over a stream socket: the number of parts, their lengths, the parts.

A task goes to a decoder as a pickle. An answer comes back as JSON and plain numbers, within bounds that the service
knows beforehand: strangers' bytes may have taken over who writes it, so that nothing of it is unpickled.
"""

import json
import math
import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import InputError, InputTooLarge
from ..forms import FormError, FormFieldError

Array = npt.NDArray[Any]
SIZE = struct.Struct("<Q")
MOST_HEAD_BYTES = 2**16
MOST_TOKENIZERS = 8  # that a process has ready; where it gets one more, it forgets them all first
# What may be wrong with what is read, and how many texts say it.
ERRORS: dict[str, tuple[type[Exception], int]] = {
    "InputError": (InputError, 3),
    "InputTooLarge": (InputTooLarge, 3),
    "FormError": (FormError, 1),
    "FormFieldError": (FormFieldError, 2),
}
Answer = Array | Exception


@dataclass(frozen=True)
class Expected:
    """An array of at most `rows` examples of this shape, in numbers of this type."""

    rows: int
    shape: tuple[int, ...]
    dtype: type[np.generic] = np.float32

    @property
    def bytes(self) -> int:
        """At most."""
        return self.rows * math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class GivenTokenizer:
    """A task that has no answer: to have this tokenizer ready, as the arguments of `TextReader` describe it."""

    identity: str
    data: bytes
    length: int


class BrokenAnswerError(ConnectionError):
    """A decoder sent what no decoder sends."""


def pack(value: Any) -> list[memoryview]:
    """A task, as the parts to send in order; arrays are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return _framed([memoryview(head), *(buffer.raw() for buffer in buffers)])


def unpack(parts: Sequence[bytearray]) -> Any:
    """A task; its arrays share the parts' memory."""
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301  only the service writes here


def pack_answer(answer: Answer) -> list[memoryview]:
    """An array (B, ...), or an error that says what is wrong with the images or texts."""
    if isinstance(answer, Exception):
        kind = type(answer).__name__
        texts = list(answer.__reduce__()[1])
        return _framed([memoryview(json.dumps({"error": kind, "texts": texts}).encode())])
    head = memoryview(json.dumps({"shape": answer.shape}).encode())
    return _framed([head, np.ascontiguousarray(answer).data.cast("B")])


def check_sizes(sizes: Sequence[int], most_bytes: int) -> None:
    """Raises `BrokenAnswerError` for other parts than an answer has, an array of at most `most_bytes`."""
    bounds = (MOST_HEAD_BYTES, most_bytes)
    if not 1 <= len(sizes) <= len(bounds) or any(size > most for size, most in zip(sizes, bounds, strict=False)):
        raise BrokenAnswerError("a decoder's answer has other parts than expected")


def unpack_answer(parts: Sequence[bytearray], expected: Expected) -> Answer:
    """The array, which shares its part's memory, or the error; raises `BrokenAnswerError`."""
    try:
        head = json.loads(parts[0])
        if "error" in head:
            kind, count = ERRORS[head["error"]]
            texts = [text for text in head["texts"] if isinstance(text, str)]
            if len(texts) != count:
                raise ValueError("another number of texts")
            return kind(*texts)
        found = tuple(map(int, head["shape"]))
        if found[1:] != expected.shape or math.prod(found) * np.dtype(expected.dtype).itemsize != len(parts[1]):
            raise ValueError("another shape")
        return np.frombuffer(parts[1], expected.dtype).reshape(found)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise BrokenAnswerError(f"a decoder's answer cannot be read: {error!s:.100}") from None


def _framed(parts: list[memoryview]) -> list[memoryview]:
    return [memoryview(SIZE.pack(len(parts)) + sizes_to_bytes([part.nbytes for part in parts])), *parts]


def sizes_to_bytes(sizes: Sequence[int]) -> bytes:
    """The lengths of the parts."""
    return b"".join(map(SIZE.pack, sizes))


def sizes_from_bytes(data: bytes | bytearray) -> list[int]:
    """The lengths of the parts."""
    return [size for (size,) in SIZE.iter_unpack(data)]
