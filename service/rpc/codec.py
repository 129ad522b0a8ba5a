"""ModelInferRequest -> what is asked for, and its answer -> ModelInferResponse.

The bytes of tensors are those of the HTTP protocol.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from starlette.datastructures import Headers

from ..codec.arrays import InputLimits
from ..data_plane import Asked, Outcome, Reader
from ..http.request_id import given_id
from ..models.served import ServedModel
from ..oip import InferRequest
from ..oip.datatypes import BYTES, LENGTH, NUMPY, Array, to_bytes
from ..oip.errors import RequestError
from ..oip.outputs import Output, outputs_of
from ..oip.request import request_of
from ..oip.schemas import MAX_DIMENSIONS
from ..routes.v2_infer import BINARY_SPEED, answer_of, asked_by
from .protocol import Protocol

# The field of InferTensorContents for each datatype, and the type of its numbers.
CONTENTS = {
    "BOOL": ("bool_contents", np.bool_),
    "INT8": ("int_contents", np.int32),
    "INT16": ("int_contents", np.int32),
    "INT32": ("int_contents", np.int32),
    "INT64": ("int64_contents", np.int64),
    "UINT8": ("uint_contents", np.uint32),
    "UINT16": ("uint_contents", np.uint32),
    "UINT32": ("uint_contents", np.uint32),
    "UINT64": ("uint64_contents", np.uint64),
    "FP32": ("fp32_contents", np.float32),
    "FP64": ("fp64_contents", np.float64),
}


def typed_bytes(tensor: Any, place: str) -> bytes:
    """The bytes of an InferInputTensor's typed contents; raises `RequestError` for a datatype that has none, values in
    another field, and numbers that the datatype does not hold."""
    if tensor.datatype == BYTES:
        _check_field(tensor, "bytes_contents", place)
        return b"".join(LENGTH.pack(len(element)) + element for element in tensor.contents.bytes_contents)
    if tensor.datatype not in CONTENTS:
        expected = f"raw_input_contents, or one of {', '.join(CONTENTS)}"
        raise RequestError(f"{place}.contents", f"{tensor.datatype!r:.50}", expected)
    field, kind = CONTENTS[tensor.datatype]
    _check_field(tensor, field, place)
    values: Array = np.array(getattr(tensor.contents, field), kind)
    exact = values.astype(NUMPY[tensor.datatype])
    if values.dtype.kind in "iu" and not np.array_equal(exact, values):
        odd = values[exact != values][0]
        raise RequestError(f"{place}.contents.{field}", f"{odd}", f"numbers that fit {tensor.datatype}")
    return exact.tobytes()


def _check_field(tensor: Any, field: str, place: str) -> None:
    others = [found.name for found, _ in tensor.contents.ListFields() if found.name != field]
    if others:
        raise RequestError(f"{place}.contents", others[0], f"{field} for {tensor.datatype}")


def add_contents(tensor: Any, values: Array) -> None:
    """Put the values into an InferOutputTensor's typed contents, in its datatype."""
    exact = values.astype(NUMPY[tensor.datatype], copy=False)
    getattr(tensor.contents, CONTENTS[tensor.datatype][0]).extend(exact.ravel().tolist())


Json = dict[str, Any]
NUMBERS = frozenset({"false_reject_rate"})  # parameters that KServe's messages can only hold as a text
RAW, TYPED = "grpc, raw", "grpc, typed"


@dataclass(frozen=True)
class Reply:
    """A message as bytes."""

    body: bytes


def binder(
    protocol: Protocol, message: Any, headers: Headers, limits: InputLimits
) -> Callable[[ServedModel], Reader[Reply]]:
    """For a parsed message, whose bytes are the body. An answer has contents by type, and not raw, where the request
    has."""
    typed = not message.raw_input_contents

    def bind(model: ServedModel) -> Reader[Reply]:
        identity, known = given_id(headers), outputs_of(model.manifest)

        def read(_: bytes) -> Asked[Reply]:
            asked = infer_request(message)
            return asked_by(asked, identity, model, limits, partial(_encode, protocol, typed, asked, known))

        return Reader(TYPED, read) if typed else Reader(RAW, read, lambda body: len(body) // BINARY_SPEED)

    return bind


def infer_request(message: Any) -> InferRequest:
    """The protocol's request in a message; raises `RequestError` for contents that are no tensors."""
    contents = _contents(message)
    inputs = []
    for i, (tensor, content) in enumerate(zip(message.inputs, contents, strict=True)):
        if len(tensor.shape) > MAX_DIMENSIONS:  # a message has room for millions
            found = f"{len(tensor.shape)} entries"
            raise RequestError(f"inputs[{i}].shape", found, f"at most {MAX_DIMENSIONS}")
        parameters = {**_parameters(tensor), "binary_data_size": len(content)}
        described = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        inputs.append({**described, "parameters": parameters})
    outputs = [{"name": wanted.name, "parameters": _parameters(wanted)} for wanted in message.outputs]
    values = {"id": message.id or None, "inputs": inputs, "outputs": outputs, "parameters": _parameters(message)}
    return request_of(values, contents)


def _contents(message: Any) -> list[bytes]:
    raw = message.raw_input_contents
    if not raw:
        return [typed_bytes(tensor, f"inputs[{i}]") for i, tensor in enumerate(message.inputs)]
    if len(raw) != len(message.inputs):
        found = f"{len(raw)} contents for {len(message.inputs)} inputs"
        raise RequestError("raw_input_contents", found, "one for each input")
    for i, tensor in enumerate(message.inputs):
        if tensor.HasField("contents"):
            raise RequestError(f"inputs[{i}].contents", "raw_input_contents too", "one of them")
    return list(raw)


def _parameters(part: Any) -> Json:
    """Those that are set, as JSON has them."""
    found = {}
    for name, parameter in part.parameters.items():
        choice = parameter.WhichOneof("parameter_choice")
        if choice is not None:
            value = getattr(parameter, choice)
            found[name] = _number(value) if name in NUMBERS and isinstance(value, str) else value
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:  # refused by name
        return text


def _encode(
    protocol: Protocol, typed: bool, asked: InferRequest, known: Mapping[str, Output], outcome: Outcome
) -> Reply:
    head, tensors = answer_of(asked, known, outcome)
    message = protocol["ModelInferResponse"](
        model_name=head.model_name, model_version=head.model_version, id=head.id or ""
    )
    for name, value in head.parameters.items():
        setattr(message.parameters[name], "bool_param" if isinstance(value, bool) else "string_param", value)
    for wanted, values in tensors:
        datatype = known[wanted.name].datatype
        tensor = message.outputs.add(name=wanted.name, datatype=datatype, shape=values.shape)
        if typed:
            add_contents(tensor, values)
        else:
            message.raw_output_contents.append(to_bytes(datatype, values))
    return Reply(message.SerializeToString())
