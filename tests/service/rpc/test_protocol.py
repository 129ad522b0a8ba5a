"""service/rpc: the messages as other implementations have them, and what strangers may send for one."""

from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from demur.service.codec.arrays import InputError
from demur.service.oip.datatypes import NUMPY
from demur.service.rpc.codec import add_contents, infer_request, typed_bytes
from demur.service.rpc.protocol import METHODS, SERVICE, Protocol
from demur.service.rpc.wire import MOST_PARTS, MalformedMessage, check_parts

PROTOCOL = Protocol()
REQUEST = PROTOCOL["ModelInferRequest"]
TENSOR = {"name": "inputs", "datatype": "FP32", "shape": [1, 2]}


def fields(message: Any) -> dict[str, tuple[int, int, int, str]]:
    """Of a DescriptorProto: number, type, label and message of each."""
    return {
        field.name: (field.number, field.type, field.label, field.type_name.rpartition(".")[2])
        for field in message.field
    }


def messages(found: Any, prefix: str = "") -> dict[str, Any]:
    """Those of a file, and those in them, by name."""
    every = {}
    for message in found:
        every[prefix + message.name] = message
        every |= messages(message.nested_type, f"{prefix}{message.name}.")
    return every


def test_every_field_is_tritons() -> None:
    """Its file has more messages, and more fields in some."""
    triton = pytest.importorskip("tritonclient.grpc.service_pb2")
    own, theirs = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorProto()
    PROTOCOL.pool.FindFileContainingSymbol(SERVICE).CopyToProto(own)
    triton.DESCRIPTOR.CopyToProto(theirs)
    known = messages(theirs.message_type)
    for name, message in messages(own.message_type).items():
        assert fields(message).items() <= fields(known[name]).items(), name
    services = {service.name: {method.name for method in service.method} for service in theirs.service}
    assert set(METHODS) <= services[SERVICE.rpartition(".")[2]]


def test_every_message_is_there_and_travels() -> None:
    own = descriptor_pb2.FileDescriptorProto()
    PROTOCOL.pool.FindFileContainingSymbol(SERVICE).CopyToProto(own)
    for name in (name for name in messages(own.message_type) if not name.endswith("Entry")):
        assert PROTOCOL[name].FromString(PROTOCOL[name]().SerializeToString()) == PROTOCOL[name]()
    parameter = PROTOCOL["InferParameter"](int64_param=3)
    parameter.string_param = "a"  # one of them at a time
    assert parameter.WhichOneof("parameter_choice") == "string_param"


def request(**changes: Any) -> Any:
    return REQUEST(model_name="digits", **({"inputs": [TENSOR], "raw_input_contents": [b"12345678"]} | changes))


@pytest.mark.parametrize(
    ("contents", "datatype", "expected"),
    [
        ({"bool_contents": [True, False]}, "BOOL", b"\1\0"),
        ({"int_contents": [-1, 127]}, "INT8", b"\xff\x7f"),
        ({"uint64_contents": [2**64 - 1]}, "UINT64", b"\xff" * 8),
        ({"fp32_contents": [1.5]}, "FP32", np.float32(1.5).tobytes()),
        ({"fp64_contents": [1.5]}, "FP64", np.float64(1.5).tobytes()),
        ({"bytes_contents": [b"ab", b""]}, "BYTES", b"\2\0\0\0ab\0\0\0\0"),
        ({}, "FP32", b""),
    ],
)
def test_typed_contents_are_the_same_bytes(contents: dict[str, Any], datatype: str, expected: bytes) -> None:
    tensor = PROTOCOL["ModelInferRequest.InferInputTensor"](datatype=datatype, contents=contents)
    assert typed_bytes(tensor, "inputs[0]") == expected


@pytest.mark.parametrize(
    ("contents", "datatype", "message"),
    [
        ({"int_contents": [128]}, "INT8", "inputs[0].contents.int_contents: found 128, expected numbers that fit INT8"),
        ({"fp32_contents": [1]}, "FP64", "inputs[0].contents: found fp32_contents, expected fp64_contents for FP64"),
        ({"fp32_contents": [1]}, "FP16", "inputs[0].contents: found 'FP16', expected raw_input_contents, or one of"),
        ({"fp32_contents": [1]}, "BYTES", "expected bytes_contents for BYTES"),
    ],
)
def test_contents_that_are_refused(contents: dict[str, Any], datatype: str, message: str) -> None:
    tensor = PROTOCOL["ModelInferRequest.InferInputTensor"](datatype=datatype, contents=contents)
    with pytest.raises(InputError) as refused:
        typed_bytes(tensor, "inputs[0]")
    assert message in str(refused.value)


@pytest.mark.parametrize("datatype", ["BOOL", "FP32", "FP64"])
def test_outputs_by_type(datatype: str) -> None:
    values = np.array([[1, 0, 1]], NUMPY[datatype])
    tensor = PROTOCOL["ModelInferResponse.InferOutputTensor"](datatype=datatype, shape=values.shape)
    add_contents(tensor, values)
    ((_, found),) = tensor.contents.ListFields()
    assert list(found) == values.reshape(-1).tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"raw_input_contents": [b"", b""]}, "raw_input_contents: found 2 contents for 1 inputs"),
        (
            {"inputs": [{"name": "inputs", "contents": {"fp32_contents": [1]}}]},
            "inputs[0].contents: found raw_input_contents too",
        ),
        ({"inputs": [TENSOR, TENSOR], "raw_input_contents": [b"12345678"] * 2}, "inputs[1].name: found 'inputs' once"),
        ({"inputs": [TENSOR | {"shape": [1, 3]}]}, "inputs[0].parameters.binary_data_size: found 8 bytes, expected 12"),
        ({"inputs": [TENSOR | {"shape": [1] * 10**6}]}, "inputs[0].shape: found 1000000 entries, expected at most 32"),
        ({"inputs": [], "raw_input_contents": []}, "inputs: found an empty list"),
    ],
)
def test_requests_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        infer_request(request(**changes))
    assert message in str(refused.value)


def test_a_rate_may_be_a_text_since_kserve_has_no_numbers() -> None:
    rate = PROTOCOL["InferParameter"](string_param="0.25")
    name = PROTOCOL["InferParameter"](string_param="0.25")
    assert infer_request(request(parameters={"false_reject_rate": rate, "name": name})).false_reject_rate == 0.25


def test_parts_are_counted_before_a_message_is_parsed() -> None:
    parameter = PROTOCOL["InferParameter"](bool_param=True)
    usual = request(parameters={"a": parameter}, outputs=[{"name": "mean", "parameters": {"b": parameter}}])
    check_parts(usual.SerializeToString())
    many = [
        request(inputs=[{}] * MOST_PARTS),
        request(parameters={f"{number}": parameter for number in range(MOST_PARTS // 2)}),
        request(inputs=[{"parameters": {f"{number}": parameter for number in range(MOST_PARTS // 2)}}]),
        request(outputs=[{"parameters": {f"{number}": parameter for number in range(MOST_PARTS // 2)}}]),
    ]
    for message in many:
        with pytest.raises(MalformedMessage, match="more than"):
            check_parts(message.SerializeToString())
    numbers = request(inputs=[{"contents": {"fp32_contents": [0.0] * (10 * MOST_PARTS)}}])
    check_parts(numbers.SerializeToString())  # packed, as numbers are


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        check_parts(data)
    except MalformedMessage:
        return


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=20))
def test_what_is_a_message_passes(values: list[float]) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(values)], "contents": {"fp32_contents": values}}
    message = request(inputs=[tensor], raw_input_contents=[])
    check_parts(message.SerializeToString())
    if values:
        (found,) = infer_request(message).tensors
        np.testing.assert_array_equal(found.array(), np.array(values, np.float32))
