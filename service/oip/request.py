"""Parse the body of `infer`: JSON alone, or JSON followed by the bytes of the tensors."""

import functools
from dataclasses import dataclass

from ..codec.json_limits import JsonLimits
from . import schemas
from .errors import RequestError
from .parsing import parse, read_json, shown
from .schemas import INPUT
from .tensor import Tensor, read_tensor

LENGTH_HEADER = "Inference-Header-Content-Length"
# A client with binary tensors mostly repeats its short JSON: so many of these are parsed once.
REMEMBERED, REMEMBERED_BYTES = 64, 1024


@dataclass(frozen=True)
class Wanted:
    """An output to be sent, in binary or not."""

    name: str
    binary: bool
    place: str


@dataclass(frozen=True)
class InferRequest:
    """`outputs` None: all outputs, in binary where `binary` says so. `timeout_seconds`, `false_reject_rate` None: the
    service's own."""

    id: str | None
    tensors: tuple[Tensor, ...]
    outputs: tuple[Wanted, ...] | None
    binary: bool
    timeout_seconds: float | None
    false_reject_rate: float | None = None


def parse_request(body: bytes, header_length: int | None, limits: JsonLimits) -> InferRequest:
    """`header_length`: how long the JSON is where binary data follow it; raises `NotJson` or `InputError`."""
    if header_length is not None and not 0 <= header_length <= len(body):
        raise RequestError(LENGTH_HEADER, shown(header_length), f"at most the body's {len(body)} bytes")
    json = body if header_length is None else body[:header_length]
    repeats = header_length is not None and header_length <= REMEMBERED_BYTES
    head = _remembered_head(json, limits) if repeats else _head(json, limits)
    tensors = _inputs(head.inputs, body, header_length)
    return InferRequest(head.id, tensors, head.outputs, head.binary, head.timeout_seconds, head.false_reject_rate)


@dataclass(frozen=True)
class _Head:
    """What the JSON says, before its input is compared with the body."""

    id: str | None
    inputs: list[schemas.InputTensor]
    outputs: tuple[Wanted, ...] | None
    binary: bool
    timeout_seconds: float | None
    false_reject_rate: float | None


def _head(json: bytes, limits: JsonLimits) -> _Head:
    request = parse(schemas.InferRequest, read_json(json, limits))
    parameters = request.parameters or schemas.InferParameters()
    binary = parameters.binary_data_output or False
    seconds = parameters.timeout / 1e6 if parameters.timeout else None  # microseconds, as Triton has it
    outputs = _outputs(request.outputs, binary)
    return _Head(request.id, request.inputs, outputs, binary, seconds, parameters.false_reject_rate)


_remembered_head = functools.lru_cache(REMEMBERED)(_head)


def header_length(text: str | None) -> int | None:
    """The header's value as a number; raises `InputError`."""
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise RequestError(LENGTH_HEADER, shown(text), "the length of the JSON in bytes")
    return int(text)


def _inputs(entries: list[schemas.InputTensor], body: bytes, length: int | None) -> tuple[Tensor, ...]:
    """The inputs, whose bytes are all that follows the JSON, in their order."""
    if not entries:
        raise RequestError("inputs", "an empty list", f"one input, named {INPUT!r}, or all of several by their names")
    begin = at = len(body) if length is None else length
    tensors = []
    for i, entry in enumerate(entries):
        if any(entry.name == other.name for other in entries[:i]):
            raise RequestError(f"inputs[{i}].name", f"{shown(entry.name)} once more", "each input once")
        if length is None and entry.parameters and entry.parameters.binary_data_size is not None:
            place = f"inputs[{i}].parameters.binary_data_size"
            raise RequestError(place, "binary data", f"the header {LENGTH_HEADER}, or the values in 'data'")
        tensors.append(read_tensor(entry, f"inputs[{i}]", body, at))
        at = tensors[-1].stop
    if at != len(body):
        found, expected = f"{len(body) - begin} bytes after the JSON", f"{at - begin}, as the inputs say"
        raise RequestError("body", found, expected)
    return tuple(tensors)


def _outputs(entries: list[schemas.RequestedOutput] | None, binary: bool) -> tuple[Wanted, ...] | None:
    if not entries:
        return None
    wanted: dict[str, Wanted] = {}
    for i, entry in enumerate(entries):
        place = f"outputs[{i}].name"
        if entry.name in wanted:
            raise RequestError(place, f"{shown(entry.name)} once more", "each output once")
        own = None if entry.parameters is None else entry.parameters.binary_data
        wanted[entry.name] = Wanted(entry.name, binary if own is None else own, place)
    return tuple(wanted.values())
