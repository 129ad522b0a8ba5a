"""ModelInfer <-> the HTTP request and its answer: JSON, followed by the bytes of the tensors."""

import json
from typing import Any

from ..oip.errors import RequestError
from ..oip.request import LENGTH_HEADER
from .protocol import Protocol
from .tensors import add_contents, typed_bytes

Json = dict[str, Any]
NUMBERS = frozenset({"false_reject_rate"})  # parameters that KServe's messages can only hold as a text


def to_http(request: Any) -> tuple[dict[str, str], list[bytes]]:
    """Headers and the pieces of the body; raises `RequestError` for contents that are no tensors."""
    data = _contents(request)
    inputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.shape),
            "parameters": {**_parameters(tensor), "binary_data_size": len(content)},
        }
        for tensor, content in zip(request.inputs, data, strict=True)
    ]
    head: Json = {"inputs": inputs, "parameters": {**_parameters(request), "binary_data_output": True}}
    if request.id:
        head["id"] = request.id
    if request.outputs:
        head["outputs"] = [
            {"name": wanted.name, "parameters": {**_parameters(wanted), "binary_data": True}}
            for wanted in request.outputs
        ]
    text = json.dumps(head).encode()
    return {LENGTH_HEADER: str(len(text)), "content-type": "application/octet-stream"}, [text, *data]


def _contents(request: Any) -> list[bytes]:
    raw = request.raw_input_contents
    if not raw:
        return [typed_bytes(tensor, f"inputs[{i}]") for i, tensor in enumerate(request.inputs)]
    if len(raw) != len(request.inputs):
        found = f"{len(raw)} contents for {len(request.inputs)} inputs"
        raise RequestError("raw_input_contents", found, "one for each input")
    for i, tensor in enumerate(request.inputs):
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


def to_message(protocol: Protocol, body: bytes, length: int, typed: bool) -> Any:
    """The ModelInferResponse for an answer whose JSON has this length; typed: with contents by type, as in a request
    that had them, and not raw."""
    head = json.loads(body[:length])
    message = protocol["ModelInferResponse"](model_name=head["model_name"], model_version=head["model_version"])
    message.id = head.get("id", "")
    for name, value in head.get("parameters", {}).items():
        field = "bool_param" if isinstance(value, bool) else "string_param"
        setattr(message.parameters[name], field, value)
    at = length
    for output in head["outputs"]:
        tensor = message.outputs.add(name=output["name"], datatype=output["datatype"], shape=output["shape"])
        size = output["parameters"]["binary_data_size"]
        if typed:
            add_contents(tensor, body[at : at + size])
        else:
            message.raw_output_contents.append(body[at : at + size])
        at += size
    return message
