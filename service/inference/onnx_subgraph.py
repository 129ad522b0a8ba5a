"""The part of an ONNX model that computes some of its outputs, by protobuf's wire format alone.

onnxruntime runs a whole graph whichever outputs are asked for (1.31 does so even with `only_execute_path_to_fetches`),
so a cheaper answer needs a smaller graph. Messages are copied as they are, byte by byte; only the lists of a graph's
nodes, initialisers and outputs are thinned out. Field numbers: onnx.proto3 of ONNX 1.16, which never change.
"""

from collections.abc import Iterable, Iterator

from service.inference.onnx_wire import BYTES, Message, WireError, field, fields

GRAPH = 7  # of ModelProto
NODE, INITIALIZER, OUTPUT, VALUE_INFO = 1, 5, 12, 13  # of GraphProto
NODE_INPUT, NODE_OUTPUT, NODE_ATTRIBUTE = 1, 2, 5
SUBGRAPHS = (6, 11)  # of AttributeProto
INITIALIZER_NAME, VALUE_NAME = 8, 1
MAX_DEPTH = 20


def part_of(model: bytes, outputs: Iterable[str]) -> bytes:
    """The serialised model with only these outputs, and only what they need; raises `WireError`."""
    wanted = set(outputs)
    return b"".join(
        field(GRAPH, _thinned(content, wanted)) if number == GRAPH and kind == BYTES else whole
        for number, kind, content, whole in fields(model)
    )


def _thinned(graph: Message, outputs: set[str]) -> bytes:
    parts = list(fields(graph))
    needed, kept = set(outputs), set[int]()
    for position in range(len(parts) - 1, -1, -1):  # nodes stand in an order in which they can be computed
        number, kind, content, _ = parts[position]
        if number == NODE and kind == BYTES and needed & set(_texts(content, NODE_OUTPUT)):
            kept.add(position)
            needed |= _reads(content, MAX_DEPTH)
    return b"".join(
        whole
        for position, (number, _, content, whole) in enumerate(parts)
        if _stays(number, content, needed, outputs) or position in kept
    )


def _stays(number: int, content: Message, needed: set[str], outputs: set[str]) -> bool:
    if number == INITIALIZER:
        return bool(needed & set(_texts(content, INITIALIZER_NAME)))
    if number == OUTPUT:
        return bool(outputs & set(_texts(content, VALUE_NAME)))
    return number not in (NODE, VALUE_INFO)


def _reads(node: Message, depth: int) -> set[str]:
    """The names that a node reads, also from inside its subgraphs (whose own inner names do no harm)."""
    if not depth:
        raise WireError("graphs nested too deep")
    names = set(_texts(node, NODE_INPUT))
    for number, kind, attribute, _ in fields(node):
        if number == NODE_ATTRIBUTE and kind == BYTES:
            for inner, wire, graph, _ in fields(attribute):
                if inner in SUBGRAPHS and wire == BYTES:
                    names |= _graph_reads(graph, depth - 1)
    return names


def _graph_reads(graph: Message, depth: int) -> set[str]:
    names = set[str]()
    for number, kind, content, _ in fields(graph):
        if number == NODE and kind == BYTES:
            names |= _reads(content, depth)
        elif number == OUTPUT and kind == BYTES:
            names |= set(_texts(content, VALUE_NAME))
    return names


def _texts(message: Message, wanted: int) -> Iterator[str]:
    for number, kind, content, _ in fields(message):
        if number == wanted and kind == BYTES:
            yield bytes(content).decode(errors="surrogateescape")
