"""Every datatype, to bytes and back, from JSON and back; and values that do not fit."""

import typing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from demur.service.oip.datatypes import (
    BF16,
    BOOL,
    NAMES,
    NUMPY,
    from_bytes,
    from_values,
    item_size,
    split_elements,
    to_bytes,
    to_values,
)
from demur.service.oip.errors import RequestError
from demur.service.oip.schemas import Datatype
from tests.support.v2 import join_elements

PLAIN = [name for name in NUMPY if name != BF16]
WHOLE = [name for name, dtype in NUMPY.items() if dtype.kind in "iu"]


def some(datatype: str) -> Any:
    return arrays.arrays(NUMPY[datatype], st.integers(0, 20))


@pytest.mark.parametrize("datatype", PLAIN)
@given(data=st.data())
def test_bytes_and_back(datatype: str, data: st.DataObject) -> None:
    values = data.draw(some(datatype))
    encoded = to_bytes(datatype, values)
    assert len(encoded) == len(values) * item_size(datatype)
    found = from_bytes(datatype, encoded, 0, len(values))
    assert found.dtype == NUMPY[datatype]
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("datatype", PLAIN)
@given(data=st.data())
def test_json_and_back(datatype: str, data: st.DataObject) -> None:
    values = data.draw(some(datatype))
    values = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    found = from_values(datatype, to_values(values), "data")
    assert found.dtype == NUMPY[datatype]
    np.testing.assert_array_equal(found, values)


@given(arrays.arrays(np.float32, 5))
def test_bf16_is_the_upper_half_of_a_float32(values: Any) -> None:
    encoded = to_bytes(BF16, values)
    assert encoded == b"".join(value.tobytes()[2:] for value in values)
    found = from_bytes(BF16, encoded, 0, len(values))
    assert [value.tobytes() for value in found] == [b"\0\0" + value.tobytes()[2:] for value in values]
    assert to_bytes(BF16, found) == encoded


def test_bf16_in_json_is_cut_as_it_is_in_bytes() -> None:
    found = from_values(BF16, [1.0, 3.14159265, -2.5], "data")
    assert found.tolist() == [1.0, 3.140625, -2.5]


@given(st.lists(st.binary(max_size=20), max_size=8), st.binary(max_size=5), st.binary(max_size=5))
def test_elements_of_bytes_and_back(elements: list[bytes], before: bytes, after: bytes) -> None:
    data = join_elements(elements)
    whole = before + data + after
    found = split_elements(whole, len(before), len(before) + len(data), len(elements), "place")
    assert found == elements


@pytest.mark.parametrize(
    ("data", "count", "found"),
    [
        (b"\1\0", 1, "2 bytes"),
        (b"\2\0\0\0a", 1, "element 0 of 2 bytes where 1 are left"),
        (b"\xff\xff\xff\xffa", 1, "element 0 of 4294967295 bytes"),
        (b"\1\0\0\0a", 2, "1 elements"),
        (b"\1\0\0\0a\0\0\0\0", 1, "more than 1 elements"),
        (b"", 1, "0 elements"),
    ],
)
def test_lengths_that_lie(data: bytes, count: int, found: str) -> None:
    with pytest.raises(RequestError, match=found):
        split_elements(data, 0, len(data), count, "inputs[0]")


def test_what_lies_at_an_odd_place_is_aligned() -> None:
    values = np.arange(4, dtype=np.float32)
    found = from_bytes("FP32", b"x" + values.tobytes(), 1, 4)
    assert found.flags.aligned
    np.testing.assert_array_equal(found, values)


def test_any_byte_but_zero_is_true() -> None:
    assert from_bytes(BOOL, bytes([0, 1, 2, 255]), 0, 4).tolist() == [False, True, True, True]


@pytest.mark.parametrize("datatype", WHOLE)
def test_whole_numbers_have_a_range(datatype: str) -> None:
    limits = np.iinfo(NUMPY[datatype])
    edges = [limits.min, limits.max]
    assert from_values(datatype, edges, "data").tolist() == edges
    for beyond in (limits.min - 1, limits.max + 1, 10**4000, -(10**4000)):
        with pytest.raises(RequestError) as caught:
            from_values(datatype, [0, beyond], "inputs[0].data")
        assert caught.value.field == "inputs[0].data[1]"
        assert str(limits.max) in caught.value.expected
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("datatype", "value", "expected"),
    [
        ("FP32", "1", "a number"),
        ("FP32", True, "a number"),
        ("FP32", None, "a number"),
        ("FP64", [1], "a number"),
        ("INT32", 1.0, "a whole number"),
        ("UINT8", True, "a whole number"),
        ("BOOL", 1, "true or false"),
        ("BF16", {}, "a number"),
    ],
)
def test_values_of_another_kind(datatype: str, value: Any, expected: str) -> None:
    good = True if datatype == BOOL else 1
    with pytest.raises(RequestError) as caught:
        from_values(datatype, [good, value], "data")
    assert (caught.value.field, caught.value.expected) == ("data[1]", expected)


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "BF16"])
def test_floating_point_numbers_beyond_the_datatype_are_infinite(datatype: str) -> None:
    assert from_values(datatype, [1e300, -1e300], "data").tolist() == [np.inf, -np.inf]


def test_a_whole_number_that_no_float_holds() -> None:
    with pytest.raises(RequestError, match="a huge whole number"):
        from_values("FP64", [10**400], "data")


def test_json_has_no_word_for_what_is_not_finite() -> None:
    assert to_values(np.array([1.5, np.nan, np.inf], np.float32)) == [1.5, None, None]


def test_the_documented_datatypes_are_those_that_there_are() -> None:
    assert typing.get_args(Datatype) == NAMES
