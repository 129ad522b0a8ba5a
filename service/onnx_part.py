"""The part of an ONNX model that computes some of its outputs, by protobuf's wire format alone.

onnxruntime runs a whole graph whichever outputs are asked for (1.31 does so even with `only_execute_path_to_fetches`),
so a cheaper answer needs a smaller graph. Messages are copied as they are, byte by byte; only the lists of a graph's
nodes, initialisers and outputs are thinned out. Field numbers: onnx.proto3 of ONNX 1.16, which never change.
"""

from collections.abc import Iterable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
GRAPH = 7  # of ModelProto
NODE, INITIALIZER, OUTPUT, VALUE_INFO = 1, 5, 12, 13  # of GraphProto
NODE_INPUT, NODE_OUTPUT, NODE_ATTRIBUTE = 1, 2, 5
SUBGRAPHS = (6, 11)  # of AttributeProto
INITIALIZER_NAME, VALUE_NAME = 8, 1
MAX_DEPTH = 20

# Number, wire type, content (of BYTES: without its length), and the whole field as it stands.
Field = tuple[int, int, bytes, bytes]


class WireError(ValueError):
    """The bytes are not protobuf."""


def part_of(model: bytes, outputs: Iterable[str]) -> bytes:
    """The serialised model with only these outputs, and only what they need; raises `WireError`."""
    wanted = set(outputs)
    return b"".join(
        _field(GRAPH, _thinned(content, wanted)) if number == GRAPH and kind == BYTES else whole
        for number, kind, content, whole in _fields(model)
    )


def _thinned(graph: bytes, outputs: set[str]) -> bytes:
    fields = list(_fields(graph))
    needed, kept = set(outputs), set[int]()
    for position in range(len(fields) - 1, -1, -1):  # nodes stand in an order in which they can be computed
        number, kind, content, _ = fields[position]
        if number == NODE and kind == BYTES and needed & set(_texts(content, NODE_OUTPUT)):
            kept.add(position)
            needed |= _reads(content, MAX_DEPTH)
    return b"".join(
        whole
        for position, (number, _, content, whole) in enumerate(fields)
        if _stays(number, content, needed, outputs) or position in kept
    )


def _stays(number: int, content: bytes, needed: set[str], outputs: set[str]) -> bool:
    if number == INITIALIZER:
        return bool(needed & set(_texts(content, INITIALIZER_NAME)))
    if number == OUTPUT:
        return bool(outputs & set(_texts(content, VALUE_NAME)))
    return number not in (NODE, VALUE_INFO)


def _reads(node: bytes, depth: int) -> set[str]:
    """The names that a node reads, also from inside its subgraphs (whose own inner names do no harm)."""
    if not depth:
        raise WireError("graphs nested too deep")
    names = set(_texts(node, NODE_INPUT))
    for number, kind, attribute, _ in _fields(node):
        if number == NODE_ATTRIBUTE and kind == BYTES:
            for inner, wire, graph, _ in _fields(attribute):
                if inner in SUBGRAPHS and wire == BYTES:
                    names |= _graph_reads(graph, depth - 1)
    return names


def _graph_reads(graph: bytes, depth: int) -> set[str]:
    names = set[str]()
    for number, kind, content, _ in _fields(graph):
        if number == NODE and kind == BYTES:
            names |= _reads(content, depth)
        elif number == OUTPUT and kind == BYTES:
            names |= set(_texts(content, VALUE_NAME))
    return names


def _texts(message: bytes, wanted: int) -> Iterator[str]:
    for number, kind, content, _ in _fields(message):
        if number == wanted and kind == BYTES:
            yield content.decode(errors="surrogateescape")


def _fields(message: bytes) -> Iterator[Field]:
    position = 0
    while position < len(message):
        start = position
        tag, position = _varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            _, position = _varint(message, position)
            yield number, kind, b"", message[start:position]
            continue
        size = FIXED_SIZES.get(kind)
        if kind == BYTES:
            size, position = _varint(message, position)
        if size is None or position + size > len(message):
            raise WireError(f"found a field of wire type {kind} at byte {start} that the message does not hold")
        yield number, kind, message[position : position + size], message[start : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise WireError(f"found no whole number at byte {position}")


def _field(number: int, content: bytes) -> bytes:
    return _number(number << 3 | BYTES) + _number(len(content)) + content


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
