"""Extract the part of an ONNX model that computes some of its outputs, on protobuf's wire format alone.

onnxruntime runs a whole graph whichever outputs are asked for (1.31 does so even with `only_execute_path_to_fetches`),
so a cheaper answer needs a smaller graph. Messages are copied byte by byte; only the lists of nodes, initialisers and
outputs are filtered. Field numbers: onnx.proto3 of ONNX 1.16, which never change.
"""

from collections.abc import Iterable, Iterator

from .onnx_wire import BYTES, Message, WireError, field, fields

GRAPH, FUNCTIONS = 7, 25  # of ModelProto
NODE, INITIALIZER, OUTPUT, VALUE_INFO = 1, 5, 12, 13  # of GraphProto
NODE_INPUT, NODE_OUTPUT, NODE_ATTRIBUTE = 1, 2, 5
SUBGRAPHS = (6, 11)  # of AttributeProto
INITIALIZER_NAME, VALUE_NAME = 8, 1
MAX_DEPTH = 20


def extract_subgraph(model: bytes, outputs: Iterable[str]) -> bytes:
    """The serialised model with only these outputs, and only what they need; raises `WireError`."""
    wanted = set(outputs)
    return b"".join(
        field(GRAPH, _filtered(content, wanted)) if number == GRAPH and kind == BYTES else whole
        for number, kind, content, whole in fields(model)
    )


def may_repeat(model: bytes) -> bool:
    """Whether a node of the model has a graph of its own, as loops do: how long these run may depend on the input. A
    model with functions of its own may hide them there. Raises `WireError`."""
    for number, kind, content, _ in fields(memoryview(model)):
        if number == FUNCTIONS:
            return True
        if number == GRAPH and kind == BYTES:
            nodes = (node for inner, wire, node, _ in fields(content) if inner == NODE and wire == BYTES)
            if any(any(_subgraphs(node)) for node in nodes):
                return True
    return False


def _subgraphs(node: Message) -> Iterator[Message]:
    for number, kind, attribute, _ in fields(node):
        if number == NODE_ATTRIBUTE and kind == BYTES:
            for inner, wire, graph, _ in fields(attribute):
                if inner in SUBGRAPHS and wire == BYTES:
                    yield graph


def _filtered(graph: Message, outputs: set[str]) -> bytes:
    parts = list(fields(graph))
    needed, kept = set(outputs), set[int]()
    for position in range(len(parts) - 1, -1, -1):  # nodes are in topological order
        number, kind, content, _ = parts[position]
        if number == NODE and kind == BYTES and needed & set(_texts(content, NODE_OUTPUT)):
            kept.add(position)
            needed |= _inputs_of(content, MAX_DEPTH)
    return b"".join(
        whole
        for position, (number, _, content, whole) in enumerate(parts)
        if _is_kept(number, content, needed, outputs) or position in kept
    )


def _is_kept(number: int, content: Message, needed: set[str], outputs: set[str]) -> bool:
    if number == INITIALIZER:
        return bool(needed & set(_texts(content, INITIALIZER_NAME)))
    if number == OUTPUT:
        return bool(outputs & set(_texts(content, VALUE_NAME)))
    return number not in (NODE, VALUE_INFO)


def _inputs_of(node: Message, depth: int) -> set[str]:
    """The names that a node reads, also inside its subgraphs (whose inner names do no harm)."""
    if not depth:
        raise WireError("graphs nested too deep")
    names = set(_texts(node, NODE_INPUT))
    for graph in _subgraphs(node):
        names |= _graph_inputs(graph, depth - 1)
    return names


def _graph_inputs(graph: Message, depth: int) -> set[str]:
    names = set[str]()
    for number, kind, content, _ in fields(graph):
        if number == NODE and kind == BYTES:
            names |= _inputs_of(content, depth)
        elif number == OUTPUT and kind == BYTES:
            names |= set(_texts(content, VALUE_NAME))
    return names


def _texts(message: Message, wanted: int) -> Iterator[str]:
    for number, kind, content, _ in fields(message):
        if number == wanted and kind == BYTES:
            yield bytes(content).decode(errors="surrogateescape")
