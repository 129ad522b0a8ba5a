"""Requests, JSON and binary: what they ask for, and every way in which they can be wrong."""

import json
from typing import Any

import numpy as np
import pytest

from demur.service.bundle import ImagePreprocessing, InputSpec
from demur.service.codec.arrays import InputError, InputLimits, InputTooLarge
from demur.service.codec.decoding import FieldError, NotJson
from demur.service.codec.json_limits import JsonLimits
from demur.service.oip import InferRequest, RequestError, parse_request
from demur.service.oip.request import header_length
from tests.support.client import base64_text
from tests.support.requests import image_file
from tests.support.v2 import array_of, join_elements

MOST = JsonLimits(100_000, 1000, 1000)
LIMITS = InputLimits(max_rows=3, max_pixels=1000)
FEATURES = InputSpec(shape=(4,))
IMAGES = InputSpec(shape=(1, 4, 5), image=ImagePreprocessing(mode="L"))
ROWS = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
GOOD = {"name": "inputs", "shape": [2, 4], "datatype": "FP32", "data": ROWS}
VALUES = np.array(ROWS, np.float32)


def written(tensor: Any = GOOD, **more: Any) -> bytes:
    return json.dumps({"inputs": [tensor], **more}).encode()


def parse(tensor: Any = GOOD, **more: Any) -> InferRequest:
    return parse_request(written(tensor, **more), None, MOST)


def binary(raw: bytes, size: Any = None, **changes: Any) -> tuple[bytes, int]:
    """A body with its JSON's length; `size` is what the JSON claims."""
    tensor = {"name": "inputs", "shape": [2, 4], "datatype": "FP32", **changes}
    tensor["parameters"] = {"binary_data_size": len(raw) if size is None else size}
    head = written(tensor)
    return head + raw, len(head)


def refused(body: bytes, length: int | None = None, spec: InputSpec = FEATURES) -> InputError:
    with pytest.raises(InputError) as caught:
        array_of(parse_request(body, length, MOST).tensors, spec, LIMITS)
    assert caught.value.found
    assert caught.value.expected
    assert len(str(caught.value)) < 600
    return caught.value


@pytest.mark.parametrize("data", [ROWS, [1, 2, 3, 4, 5, 6, 7, 8.0]], ids=["nested", "flat"])
def test_json(data: Any) -> None:
    asked = parse({**GOOD, "data": data})
    assert (asked.id, asked.outputs, asked.binary, asked.timeout_seconds) == (None, None, False, None)
    np.testing.assert_array_equal(array_of(asked.tensors, FEATURES, LIMITS), VALUES)


@pytest.mark.parametrize("datatype", ["FP32", "FP64", "FP16", "INT8", "UINT8", "INT64", "UINT64"])
def test_binary(datatype: str) -> None:
    kinds = {"FP32": "f4", "FP64": "f8", "FP16": "f2", "INT8": "i1", "UINT8": "u1", "INT64": "i8", "UINT64": "u8"}
    body, length = binary(VALUES.astype(kinds[datatype]).tobytes(), datatype=datatype)
    found = array_of(parse_request(body, length, MOST).tensors, FEATURES, LIMITS)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, VALUES)


def test_binary_numbers_of_the_network_s_own_kind_are_not_copied() -> None:
    body, length = binary(VALUES.tobytes())
    body, length = body[:length].ljust(length + -length % 4) + body[length:], length + -length % 4
    found = array_of(parse_request(body, length, MOST).tensors, FEATURES, LIMITS)
    assert not found.flags.owndata
    assert not found.flags.writeable


def test_one_example_without_the_batch() -> None:
    found = array_of(parse({**GOOD, "shape": [4], "data": ROWS[0]}).tensors, FEATURES, LIMITS)
    np.testing.assert_array_equal(found, VALUES[:1])


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_images(shape: list[int]) -> None:
    files = [image_file(), image_file("JPEG")]
    tensor = {"name": "inputs", "shape": shape, "datatype": "BYTES"}
    as_json = parse({**tensor, "data": [base64_text(file) for file in files]})
    body, length = binary(join_elements(files), **tensor)
    as_bytes = parse_request(body, length, MOST)
    first, second = (array_of(asked.tensors, IMAGES, LIMITS) for asked in (as_json, as_bytes))
    assert first.shape == (2, 1, 4, 5)
    np.testing.assert_array_equal(first, second)


def test_what_is_asked_for() -> None:
    outputs = [{"name": "mean", "parameters": {"binary_data": False}}, {"name": "score"}]
    parameters = {"binary_data_output": True, "timeout": 1500, "sequence_id": 7, "mine": "x"}
    asked = parse(id="7", outputs=outputs, parameters=parameters, model_name="ignored")
    assert asked.id == "7"
    assert asked.outputs is not None
    assert [(one.name, one.binary) for one in asked.outputs] == [("mean", False), ("score", True)]
    assert asked.binary
    assert asked.timeout_seconds == 0.0015
    assert parse(outputs=[], parameters={"timeout": 0}).timeout_seconds is None
    assert parse(outputs=[]).outputs is None


@pytest.mark.parametrize(
    "body", [b"", b"x", b"{", b"[" * 1000, b'{"inputs": ' * 300, b'{"a": "\xff"}', b'{"id": "\\ud800"}', b"{}{}"]
)
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(NotJson):
        parse_request(body, None, MOST)


@pytest.mark.parametrize("body", [b'{"id": "a", "id": "b"}', rb'{"id": "a", "\u0069d": "b"}'])
def test_a_name_twice_in_one_object(body: bytes) -> None:
    with pytest.raises(FieldError) as caught:
        parse_request(body, None, MOST)
    assert caught.value.field == "id"


def test_a_flood_of_entries_is_not_parsed() -> None:
    with pytest.raises(InputTooLarge):
        parse_request(b'{"inputs": [' + b"1," * 100_001 + b"1]}", None, MOST)


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"x"'])
def test_json_that_is_no_object(body: bytes) -> None:
    assert refused(body).field == "body"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": None}, "inputs[0].name"),
        ({"name": "input-0"}, "inputs[0].name"),
        ({"name": 1}, "inputs[0].name"),
        ({"datatype": None}, "inputs[0].datatype"),
        ({"datatype": "fp32"}, "inputs[0].datatype"),
        ({"datatype": "BYTES"}, "inputs[0].datatype"),
        ({"datatype": "BOOL", "data": [True] * 8}, "inputs"),
        ({"shape": None}, "inputs[0].shape"),
        ({"shape": []}, "inputs[0].shape"),
        ({"shape": [1] * 33}, "inputs[0].shape"),
        ({"shape": [2, -4]}, "inputs[0].shape[1]"),
        ({"shape": [0, 4], "data": []}, "inputs[0].shape[0]"),
        ({"shape": [2.0, 4]}, "inputs[0].shape[0]"),
        ({"shape": [2, True]}, "inputs[0].shape[1]"),
        ({"shape": [2, 2**63]}, "inputs[0].shape[1]"),
        ({"shape": [2, 10**4000]}, "inputs[0].shape[1]"),
        ({"shape": [2**62] * 32}, "inputs[0].data"),
        ({"shape": [2, 5]}, "inputs[0].data"),
        ({"shape": [4, 2]}, "inputs[0].data"),
        ({"shape": [4, 2], "data": [1] * 8}, "inputs"),
        ({"shape": [8], "data": [1] * 8}, "inputs"),
        ({"data": None}, "inputs[0].data"),
        ({"data": "x"}, "inputs[0].data"),
        ({"data": [ROWS[0], ROWS[1][:3]]}, "inputs[0].data"),
        ({"data": [ROWS[0], 5.0]}, "inputs[0].data"),
        ({"data": [1.0, ROWS[1]]}, "inputs[0].data"),
        ({"data": [[ROWS[0]], [ROWS[1]]]}, "inputs[0].data"),
        ({"data": [[[[[]]]]]}, "inputs[0].data"),
        ({"data": []}, "inputs[0].data"),
        ({"data": [1, 2, 3, "4", 5, 6, 7, 8]}, "inputs[0].data[3]"),
        ({"data": [1, 2, 3, 1e39, 5, 6, 7, 8]}, "inputs[0][3]"),
        ({"data": [1, 2, 3, float("nan"), 5, 6, 7, 8]}, "inputs[0][3]"),
        ({"shape": [4, 4], "data": [1] * 16}, "inputs"),
        ({"parameters": []}, "inputs[0].parameters"),
        ({"parameters": {"binary_data_size": 32}}, "inputs[0].parameters.binary_data_size"),
        ({"parameters": {"shared_memory_region": "x"}}, "inputs[0].parameters.shared_memory_region"),
    ],
    ids=str,
)
def test_tensors_that_are_wrong(changes: dict[str, Any], field: str) -> None:
    assert refused(written({**GOOD, **changes})).field == field


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"inputs": None}, "inputs"),
        ({"inputs": {}}, "inputs"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [1]}, "inputs[0]"),
        ({"inputs": [GOOD, GOOD]}, "inputs[1].name"),
        ({"inputs": [GOOD, {**GOOD, "name": "mask"}]}, "inputs[1].name"),
        ({"id": 7}, "id"),
        ({"id": "x" * 1025}, "id"),
        ({"parameters": [1]}, "parameters"),
        ({"parameters": {"binary_data_output": 1}}, "parameters.binary_data_output"),
        ({"parameters": {"timeout": "5"}}, "parameters.timeout"),
        ({"parameters": {"false_reject_rate": "0.1"}}, "parameters.false_reject_rate"),
        ({"parameters": {"trial": True}}, "parameters.trial"),
        ({"parameters": {"timeout": -5}}, "parameters.timeout"),
        ({"parameters": {"timeout": True}}, "parameters.timeout"),
        ({"parameters": {"timeout": 10**400}}, "parameters.timeout"),
        ({"outputs": "mean"}, "outputs"),
        ({"outputs": ["mean"]}, "outputs[0]"),
        ({"outputs": [{}]}, "outputs[0].name"),
        ({"outputs": [{"name": "mean"}, {"name": "mean"}]}, "outputs[1].name"),
        ({"outputs": [{"name": "mean", "parameters": {"binary_data": 1}}]}, "outputs[0].parameters.binary_data"),
        ({"outputs": [{"name": "mean", "parameters": {"classification": 2}}]}, "outputs[0].parameters.classification"),
    ],
    ids=str,
)
def test_requests_that_are_wrong(more: dict[str, Any], field: str) -> None:
    assert refused(written(**more)).field == field


@pytest.mark.parametrize("size", [0, 31, 33, -1, 2**70, True, 32.0, "32"])
def test_binary_sizes_that_lie(size: Any) -> None:
    assert refused(*binary(VALUES.tobytes(), size)).field == "inputs[0].parameters.binary_data_size"


def test_bytes_that_no_tensor_claims() -> None:
    body, length = binary(VALUES.tobytes())
    assert refused(body + b"x", length).field == "body"
    assert refused(written() + b"xx", len(written())).field == "body"


def test_data_twice() -> None:
    assert refused(*binary(VALUES.tobytes(), data=ROWS)).field == "inputs[0].data"


@pytest.mark.parametrize("length", [-1, 10**6])
def test_a_json_longer_than_the_body(length: int) -> None:
    assert refused(written(), length).field == "Inference-Header-Content-Length"


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "+1", "²", "9" * 20, "9" * 5000, "1, 2"])
def test_a_length_that_is_no_number(text: str) -> None:
    with pytest.raises(RequestError) as caught:
        header_length(text)
    assert len(str(caught.value)) < 300


def test_a_length_is_a_number() -> None:
    assert (header_length("12"), header_length(None)) == (12, None)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"data": ["!!", "!!"]}, "inputs[0]"),
        ({"data": [base64_text(image_file()), base64_text(b"x")]}, "inputs[1]"),
        ({"data": [1, 2]}, "inputs[0].data[0]"),
        ({"shape": [2, 2], "data": [""] * 4}, "inputs[0].shape"),
        ({"shape": [4], "data": [""] * 4}, "inputs"),
    ],
    ids=str,
)
def test_images_that_are_wrong(changes: dict[str, Any], field: str) -> None:
    tensor = {"name": "inputs", "shape": [2], "datatype": "BYTES", **changes}
    assert refused(written(tensor), spec=IMAGES).field == field


def test_too_many_elements_are_not_cut() -> None:
    body, length = binary(bytes(4 * 1000), datatype="BYTES", shape=[1000])
    assert isinstance(refused(body, length, IMAGES), InputTooLarge)


def test_the_same_json_with_other_bytes_is_another_request() -> None:
    first, second = VALUES, -VALUES
    for values in (first, second, first):
        body, length = binary(values.tobytes())
        np.testing.assert_array_equal(array_of(parse_request(body, length, MOST).tensors, FEATURES, LIMITS), values)
    body, length = binary(first.tobytes())
    with pytest.raises(RequestError, match="at most the 31 bytes"):
        parse_request(body[:-1], length, MOST)
    with pytest.raises(InputTooLarge, match="fields"):  # other limits, as another model may have them
        parse_request(body, length, JsonLimits(100, 100, 1))
