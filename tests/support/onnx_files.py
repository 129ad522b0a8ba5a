"""Small ONNX models, written node by node."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def perceptron(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, np.ndarray],
    opset: int = 17,
    batch: int | str = "n",
    kind: int = TensorProto.FLOAT,
    second: str | None = None,
    activation: str = "Relu",
) -> onnx.ModelProto:
    """x (B, 2) -> h (B, 5), ReLUs, -> `nodes` -> "out" of the type `kind`; activation: another
    one, of onnxruntime's own; second: the name of tokens (B, 1) below 5
    that add a vector to what comes before the ReLUs."""
    draw = np.random.default_rng(1)
    own = {"first": draw.normal(size=(2, 5)).astype(np.float32)}
    before = [helper.make_node("MatMul", ["x", "first"], ["a"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 2])]
    if second is not None:
        own["table"] = draw.normal(size=(5, 1, 5)).astype(np.float32)
        own["shape"] = np.array([-1, 5], np.int64)
        inputs.append(helper.make_tensor_value_info(second, TensorProto.INT64, [batch, 1]))
        before += [
            helper.make_node("Gather", ["table", second], ["rows"]),
            helper.make_node("Reshape", ["rows", "shape"], ["flat"]),
            helper.make_node("Add", ["a", "flat"], ["sum"]),
        ]
    domain = "" if activation == "Relu" else "com.microsoft"
    before.append(helper.make_node(activation, [before[-1].output[0]], ["h"], domain=domain))
    graph = helper.make_graph(
        [*before, *nodes],
        "perceptron",
        inputs,
        [helper.make_tensor_value_info("out", kind, [batch, 3])],
        [numpy_helper.from_array(value, name) for name, value in (own | dict(constants)).items()],
    )
    versions = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=versions, ir_version=8)
