"""What the service reads of an ONNX model before onnxruntime does, without the `onnx` package: weights that it keeps
elsewhere, and loops.

Both are read from protobuf's wire format: the fields of a message, without a schema. Bytes that two readers could
understand differently are refused. Field numbers: onnx.proto of ONNX 1.16; they never change.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
MAX_TAG = 2**32 - 1  # onnxruntime's reader keeps 32 bits

Message = bytes | memoryview
# Number, wire type, content (of BYTES: without its length; of VARINT: empty), and the whole field as it stands.
Field = tuple[int, int, Message, Message]

ORT_FORMAT = b"ORTM"  # bytes 4 to 8 of onnxruntime's own format, which is no protobuf
# Message -> its fields that are, or hold, tensors, with their message types.
CHILDREN: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
TENSOR_NAME, EXTERNAL_DATA, DATA_LOCATION = 8, 13, 14
IN_THE_MODEL = b"\x70\x00"  # the field `data_location: DEFAULT`
MAX_DEPTH = 64  # of messages inside messages: three a subgraph
GRAPH, FUNCTIONS = 7, 25  # of ModelProto
NODE, NODE_ATTRIBUTE = 1, 5  # of GraphProto, of NodeProto
SUBGRAPHS = (6, 11)  # of AttributeProto


class WireError(ValueError):
    """The bytes are not protobuf."""


def fields(message: Message) -> Iterator[Field]:
    """The fields of a message in order; of a memoryview without copies. Raises `WireError`."""
    position = 0
    while position < len(message):
        start = position
        tag, position = varint(message, position)
        number, kind = tag >> 3, tag & 7
        if tag > MAX_TAG or not number:
            raise WireError(f"found the tag {tag} at byte {start}, expected a field's")
        if kind == VARINT:
            _, position = varint(message, position)
            yield number, kind, b"", message[start:position]
            continue
        size = FIXED_SIZES.get(kind)
        if kind == BYTES:
            size, position = varint(message, position)
        if size is None or position + size > len(message):
            raise WireError(f"found a field of wire type {kind} at byte {start} that the message does not hold")
        yield number, kind, message[position : position + size], message[start : position + size]
        position += size


def varint(message: Message, position: int) -> tuple[int, int]:
    """The number that starts at `position`, and where it ends."""
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


class ExternalDataError(ValueError):
    """A tensor is stored outside the model."""


def refuse_external_data(model: bytes) -> None:
    """Refuse a model with weights outside its file, wherever a tensor can stand.

    A model can name files (or, with onnxruntime's `*/_ORT_MEM_ADDR_/*`, addresses in memory) to read weights from. A
    bundle's model holds all of its weights, so none is legitimate.

    Raises `ExternalDataError`, and `WireError` where the bytes are no model whose tensors can all be checked.
    """
    if model[4:8] == ORT_FORMAT:
        raise WireError("found onnxruntime's own format, expected ONNX")
    waiting: list[tuple[str, Message, int]] = [("model", memoryview(model), MAX_DEPTH)]
    while waiting:
        kind, message, depth = waiting.pop()
        if not depth:
            raise WireError("found graphs nested too deep")
        if kind == "tensor":
            _refuse_external(message)
            continue
        children = CHILDREN[kind]
        for number, wire, content, _ in fields(message):
            if wire == BYTES and number in children:
                waiting.append((children[number], content, depth - 1))


def _refuse_external(tensor: Message) -> None:
    """Refuse a tensor with external data. Its name comes from the model: only the first characters are shown."""
    name, external = b"", False
    for number, _, content, whole in fields(tensor):
        if number == TENSOR_NAME:
            name = bytes(content[:100])
        external |= number == EXTERNAL_DATA or (number == DATA_LOCATION and whole != IN_THE_MODEL)
    if external:
        found = f"the tensor {name.decode(errors='backslashreplace')!r} outside the model"
        raise ExternalDataError(f"found {found}, expected all weights in it")


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
