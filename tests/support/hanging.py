"""A real network that never returns for one input, computed by onnxruntime."""

from pathlib import Path

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from tests.support.bundles import FEATURE_SPEC, graph_of, model_bytes, rewrite, value_info, write_linear

HANGS = [666.0, 0.0, 0.0, 0.0]


def write_hanging(out: Path, scratch: Path, magic: float = max(HANGS)) -> Path:
    """A linear network behind a loop that never ends where the largest feature is `magic`; with 0.0, loading it
    never ends."""
    plain = write_linear(scratch, outputs=3, spec=FEATURE_SPEC, name="hanging")
    graph = graph_of(plain)
    for node in graph.node:
        node.input[:] = ["gated" if name == "inputs" else name for name in node.input]
    constants = {"magic": np.array(magic, np.float32), "none": np.array(0.0, np.float32)}
    nodes = [
        helper.make_node("ReduceMax", ["inputs"], ["largest"], keepdims=0),
        helper.make_node("Equal", ["largest", "magic"], ["endless"]),
        helper.make_node("Loop", ["", "endless", "none"], ["zero"], body=_round()),
        helper.make_node("Add", ["inputs", "zero"], ["gated"]),
    ]
    for place, node in enumerate(nodes):
        graph.node.insert(place, node)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return rewrite(plain.path, out, model=model_bytes(graph))


def _round() -> GraphProto:
    """The loop's body, which always asks for another iteration."""
    return helper.make_graph(
        [
            helper.make_node("Identity", ["goes_on"], ["still_goes_on"]),
            helper.make_node("Identity", ["carried"], ["carried_on"]),
        ],
        "round",
        [
            value_info("turn", (), TensorProto.INT64),
            value_info("goes_on", (), TensorProto.BOOL),
            value_info("carried", ()),
        ],
        [value_info("still_goes_on", (), TensorProto.BOOL), value_info("carried_on", ())],
    )
