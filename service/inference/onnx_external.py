"""Refuse ONNX models with weights outside the model file, wherever a tensor can stand.

A model can name files (or, with onnxruntime's `*/_ORT_MEM_ADDR_/*`, addresses in memory) to read weights from. A
bundle's model holds all of its weights, so none is legitimate. Field numbers: onnx.proto of ONNX 1.16.
"""

from .onnx_wire import BYTES, Message, WireError, fields

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


class ExternalDataError(ValueError):
    """A tensor is stored outside the model."""


def refuse_external_data(model: bytes) -> None:
    """Raises `ExternalDataError`, and `WireError` where the bytes are no model whose tensors can all be checked."""
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
