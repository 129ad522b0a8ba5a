"""The body of `infer` -> what it asks for. JSON alone, or JSON followed by the bytes of the tensors."""

from dataclasses import dataclass

from service.codec.json_limits import JsonLimits
from service.oip.document import Document, read_json, shown
from service.oip.errors import RequestError
from service.oip.tensor import Tensor, read_tensor

MAX_ID_LENGTH = 1024  # characters: the answer repeats the id
INPUT = "inputs"  # the network's input, as its graph calls it
LENGTH_HEADER = "Inference-Header-Content-Length"
# What a client may send and this service cannot do: better refused than left out of the answer.
IMPOSSIBLE = {
    "classification": "no such parameter; ask for the output and sort it",
    "shared_memory_region": "no such parameter; outputs are sent in the answer",
}


@dataclass(frozen=True)
class Wanted:
    """An output to be sent, in binary or not."""

    name: str
    binary: bool
    place: str


@dataclass(frozen=True)
class InferRequest:
    """`outputs` None: all there are, in binary where `binary` says so. `timeout_seconds` None: no wish."""

    id: str | None
    tensor: Tensor
    outputs: tuple[Wanted, ...] | None
    binary: bool
    timeout_seconds: float | None


def parse_request(body: bytes, header_length: int | None, bounds: JsonLimits) -> InferRequest:
    """`header_length`: how long the JSON is where binary data follow it; raises `NotJson` or `InputError`."""
    if header_length is None:
        return _request(read_json(body, bounds), body, None)
    if not 0 <= header_length <= len(body):
        raise RequestError(LENGTH_HEADER, shown(header_length), f"at most the body's {len(body)} bytes")
    return _request(read_json(body[:header_length], bounds), body, header_length)


def header_length(text: str | None) -> int | None:
    """The header's value as a number; raises `InputError`."""
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise RequestError(LENGTH_HEADER, shown(text), "the length of the JSON in bytes")
    return int(text)


def _request(document: Document, body: bytes, length: int | None) -> InferRequest:
    parameters = document.inner("parameters")
    binary = parameters.optional("binary_data_output", bool) or False
    return InferRequest(
        id=_id(document),
        tensor=_only_input(document, body, length),
        outputs=_outputs(document, binary),
        binary=binary,
        timeout_seconds=_timeout(parameters),
    )


def _id(document: Document) -> str | None:
    value = document.optional("id", str)
    if value is not None and len(value) > MAX_ID_LENGTH:
        raise RequestError(document.where("id"), f"{len(value)} characters", f"at most {MAX_ID_LENGTH}")
    return value


def _only_input(document: Document, body: bytes, length: int | None) -> Tensor:
    """The one input, whose bytes are all that follows the JSON."""
    entries = document.required("inputs", list)
    documents = [Document(entry, f"inputs[{i}]") for i, entry in enumerate(entries)]
    for i, entry in enumerate(documents):
        name = entry.required("name", str)
        if name != INPUT or i:
            found = f"{shown(name)} once more" if name == INPUT else shown(name)
            raise RequestError(entry.where("name"), found, f"one input, named {INPUT!r}")
    if not documents:
        raise RequestError("inputs", "an empty list", f"one input, named {INPUT!r}")
    start = len(body) if length is None else length
    _check_header(documents[0], length)
    tensor = read_tensor(documents[0], body, start)
    if tensor.stop != len(body):
        found, expected = f"{len(body) - start} bytes after the JSON", f"{tensor.stop - start}, as the inputs say"
        raise RequestError("body", found, expected)
    return tensor


def _check_header(entry: Document, length: int | None) -> None:
    if length is None and "binary_data_size" in entry.inner("parameters").values:
        place = entry.where("parameters.binary_data_size")
        raise RequestError(place, "binary data", f"the header {LENGTH_HEADER}, or the values in 'data'")


def _outputs(document: Document, binary: bool) -> tuple[Wanted, ...] | None:
    entries = document.optional("outputs", list)
    if not entries:
        return None
    wanted: dict[str, Wanted] = {}
    for i, entry in enumerate(entries):
        one = _output(Document(entry, f"outputs[{i}]"), binary)
        if one.name in wanted:
            raise RequestError(f"outputs[{i}].name", f"{shown(one.name)} once more", "each output once")
        wanted[one.name] = one
    return tuple(wanted.values())


def _output(document: Document, binary: bool) -> Wanted:
    parameters = document.inner("parameters")
    for name, expected in IMPOSSIBLE.items():
        if name in parameters.values:
            raise RequestError(parameters.where(name), f"the parameter {name!r}", expected)
    own = parameters.optional("binary_data", bool)
    return Wanted(document.required("name", str), binary if own is None else own, document.where("name"))


def _timeout(parameters: Document) -> float | None:
    """Microseconds, as Triton has it; 0 is no wish."""
    microseconds = parameters.optional("timeout", int)
    if microseconds is not None and not 0 <= microseconds < 2**63:
        raise RequestError(parameters.where("timeout"), shown(microseconds), "microseconds above 0")
    return microseconds / 1e6 if microseconds else None
