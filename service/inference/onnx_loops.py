"""Whether an ONNX model has loops, told on protobuf's wire format alone.

Field numbers: onnx.proto3, which never change.
"""

from collections.abc import Iterator

from .onnx_wire import BYTES, Message, fields

GRAPH, FUNCTIONS = 7, 25  # of ModelProto
NODE, NODE_ATTRIBUTE = 1, 5  # of GraphProto, of NodeProto
SUBGRAPHS = (6, 11)  # of AttributeProto


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
