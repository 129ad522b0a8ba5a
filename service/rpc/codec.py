"""ModelInferRequest -> what is asked for, and its answer -> ModelInferResponse."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.datastructures import Headers

from ..codec.arrays import InputLimits
from ..data_plane import Asked, Outcome, Reader
from ..http.request_id import given_id
from ..models.served import ServedModel
from ..oip import InferRequest
from ..oip.datatypes import to_bytes
from ..oip.errors import RequestError
from ..oip.outputs import Output, outputs_of
from ..oip.request import request_of
from ..oip.schemas import MAX_DIMENSIONS
from ..routes.v2_infer import BINARY_SPEED, answer_of, asked_by
from .protocol import Protocol
from .tensors import add_contents, typed_bytes

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
