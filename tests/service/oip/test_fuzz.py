"""Any bytes, and good requests with anything changed in them: answered, or refused by the package's own errors."""

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demur.service.bundle import ImagePreprocessing, InputSpec
from demur.service.codec.arrays import InputError, InputLimits
from demur.service.codec.decoding import NotJson
from demur.service.codec.json_limits import JsonLimits
from demur.service.oip import parse_request
from demur.service.oip.datatypes import NAMES
from tests.support.requests import image_file
from tests.support.tamper import places, replaced
from tests.support.v2 import array_of, join_elements

SPECS = {
    "numbers": InputSpec(shape=(2,)),
    "whole": InputSpec(shape=(2,), dtype="int64"),
    "one number": InputSpec(shape=()),
    "images": InputSpec(shape=(1, 4, 5), image=ImagePreprocessing(mode="L")),
}
LIMITS, BOUNDS = InputLimits(max_rows=4, max_pixels=100), JsonLimits(1000, 1000, 1000)
VALUES = np.arange(1, 5, dtype=np.float32)
FILES = join_elements([image_file(), image_file("JPEG")])


def tensor(datatype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": "inputs", "datatype": datatype, "shape": shape, **more}


def sized(data: bytes) -> dict[str, Any]:
    return {"parameters": {"binary_data_size": len(data)}}


GOOD: list[tuple[dict[str, Any], bytes]] = [
    (tensor("FP32", [2, 2], data=[[1.0, 2.0], [3.0, 4.0]]), b""),
    (tensor("INT8", [2, 2], data=[1, 2, 3, 4]), b""),
    (tensor("FP32", [2, 2], **sized(VALUES.tobytes())), VALUES.tobytes()),
    (tensor("BF16", [1, 2], **sized(b"\0\0\x80\x3f")), b"\0\0\x80\x3f"),
    (tensor("BYTES", [2, 1], **sized(FILES)), FILES),
]
odd = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 0, 2**31, 2**63, 2**64, 10**400, "", "inputs", [], {}, [[]], *NAMES])
    | st.floats()
    | st.text(max_size=3)
)
values = st.recursive(odd, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner))


def try_it(body: bytes, length: int | None, spec: InputSpec) -> None:
    with contextlib.suppress(NotJson, InputError):
        array = array_of(parse_request(body, length, BOUNDS).tensors, spec, LIMITS)
        assert array.shape[1:] == spec.shape
        assert array.dtype == spec.dtype
        assert len(array) <= LIMITS.max_rows
        assert np.isfinite(array).all()


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
@given(body=st.binary(max_size=200), length=st.none() | st.integers(-5, 300))
def test_any_bytes(spec: InputSpec, body: bytes, length: int | None) -> None:
    try_it(body, length, spec)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
@settings(max_examples=300)
@given(data=st.data())
def test_anything_in_the_json_changed(spec: InputSpec, data: st.DataObject) -> None:
    one, raw = data.draw(st.sampled_from(GOOD))
    document: Any = {"id": "1", "inputs": [one], "outputs": [{"name": "mean"}], "parameters": {"timeout": 5}}
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(list(places(document))))
        document = replaced(document, place, data.draw(values))
    head = json.dumps(document).encode()
    try_it(head + raw, len(head), spec)
    try_it(head + raw, None, spec)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
@settings(max_examples=300)
@given(data=st.data())
def test_any_bytes_of_it_changed(spec: InputSpec, data: st.DataObject) -> None:
    one, raw = data.draw(st.sampled_from(GOOD))
    head = json.dumps({"inputs": [one]}).encode()
    body = bytearray(head + raw)
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    extra = data.draw(st.sampled_from([b"", b"x", b"{}"]))
    shift = data.draw(st.integers(-2, 2))
    for changed in (bytes(body), bytes(body[:cut]), bytes(body) + extra):
        try_it(changed, len(head) + shift, spec)
        try_it(changed, None, spec)


@pytest.mark.parametrize(("one", "raw"), GOOD[:4])
def test_the_good_ones_are_good(one: dict[str, Any], raw: bytes) -> None:
    head = json.dumps({"inputs": [one]}).encode()
    found = array_of(parse_request(head + raw, len(head), BOUNDS).tensors, SPECS["numbers"], LIMITS)
    assert found.shape[1:] == (2,)
