"""What decoders answer: arrays and errors as they are, and nothing else that a hijacked one might send."""

import json
import pickle

import numpy as np
import pytest

from demur.service.codec.arrays import InputError, InputTooLarge
from demur.service.codec.decoders.channel import (
    MOST_HEAD_BYTES,
    BrokenAnswerError,
    Expected,
    check_sizes,
    pack_answer,
    unpack_answer,
)
from demur.service.codec.forms import FormError, FormFieldError

SHAPE = (3, 4, 5)
ARRAY = np.random.default_rng(0).random((2, *SHAPE), np.float32)
EXPECTED = Expected(2, SHAPE)


def sent(answer: object) -> list[bytearray]:
    """The parts without the frame."""
    return [bytearray(part) for part in pack_answer(answer)[1:]]  # type: ignore[arg-type]


def test_an_array_comes_back_as_it_was() -> None:
    found = unpack_answer(sent(ARRAY), EXPECTED)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, ARRAY)
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    "error",
    [
        InputError("files[0]", "words", "an image"),
        InputTooLarge("files", "9 pixels", "fewer"),
        FormError("no boundary"),
        FormFieldError("file", "a field"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_as_it_was(error: Exception) -> None:
    found = unpack_answer(sent(error), EXPECTED)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


class Bomb:
    """Its pickle would call a function."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("it was unpickled",)


def head(**content: object) -> bytearray:
    return bytearray(json.dumps(content).encode())


@pytest.mark.parametrize(
    "parts",
    [
        [bytearray(pickle.dumps(Bomb()))],
        [bytearray(b"[]")],
        [head(error="SystemExit", texts=["1"])],
        [head(error="InputError", texts=["1"])],
        [head(error="InputError", texts=[1, 2, 3])],
        [head(shape=[2, 3, 4, 5])],
        [head(shape=[2, 3, 4, 5]), bytearray(7)],
        [head(shape=[2, 5, 4, 3]), bytearray(ARRAY.tobytes())],
        [head(shape=[2, 3, 4, 5]), bytearray(ARRAY.astype(np.float64).tobytes())],
        [head(shape=[-2, 3, 4, 5]), bytearray(ARRAY.tobytes())],
        [head(shape="many"), bytearray(ARRAY.tobytes())],
    ],
)
def test_anything_else_is_no_answer(parts: list[bytearray]) -> None:
    with pytest.raises(BrokenAnswerError):
        unpack_answer(parts, EXPECTED)


@pytest.mark.parametrize("sizes", [[], [MOST_HEAD_BYTES + 1], [10, 481], [10, 10, 10]])
def test_nor_is_more_than_fits(sizes: list[int]) -> None:
    check_sizes([10, 480], 480)
    with pytest.raises(BrokenAnswerError):
        check_sizes(sizes, 480)
