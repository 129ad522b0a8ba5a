"""Parse the body of `infer`: JSON alone, or JSON followed by the bytes of the tensors."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    request, entries = _remembered_head(json, limits) if repeats else _head(json, limits)
    return replace(request, tensors=_inputs(entries, body, header_length))


def request_of(values: Any, contents: Sequence[bytes]) -> InferRequest:
    """Of the values that JSON would have, and the bytes of each input; raises `RequestError`."""
    request, entries = _head_of(values)
    tensors = map(read_tensor, entries, _places(entries), contents, itertools.repeat(0))
    return replace(request, tensors=tuple(tensors))


def _head(json: bytes, limits: JsonLimits) -> tuple[InferRequest, list[schemas.InputTensor]]:
    return _head_of(read_json(json, limits))


def _head_of(values: Any) -> tuple[InferRequest, list[schemas.InputTensor]]:
    """The request without its inputs, and what it says of them, which is not compared with the body yet."""
    request = parse(schemas.InferRequest, values)
    parameters = request.parameters or schemas.InferParameters()
    binary = parameters.binary_data_output or False
    seconds = parameters.timeout / 1e6 if parameters.timeout else None  # microseconds, as Triton has it
    outputs, rate = _outputs(request.outputs, binary), parameters.false_reject_rate
    return InferRequest(request.id, (), outputs, binary, seconds, rate), request.inputs


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
    begin = at = len(body) if length is None else length
    tensors = []
    for entry, place in zip(entries, _places(entries), strict=True):
        if length is None and entry.parameters and entry.parameters.binary_data_size is not None:
            size = f"{place}.parameters.binary_data_size"
            raise RequestError(size, "binary data", f"the header {LENGTH_HEADER}, or the values in 'data'")
        tensors.append(read_tensor(entry, place, body, at))
        at = tensors[-1].stop
    if at != len(body):
        found, expected = f"{len(body) - begin} bytes after the JSON", f"{at - begin}, as the inputs say"
        raise RequestError("body", found, expected)
    return tuple(tensors)


def _places(entries: list[schemas.InputTensor]) -> list[str]:
    """What errors call the inputs; refuses none, and one twice."""
    if not entries:
        raise RequestError("inputs", "an empty list", f"one input, named {INPUT!r}, or all of several by their names")
    names = set[str]()
    for i, entry in enumerate(entries):
        if entry.name in names:
            raise RequestError(f"inputs[{i}].name", f"{shown(entry.name)} once more", "each input once")
        names.add(entry.name)
    return [f"inputs[{i}]" for i in range(len(entries))]


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
