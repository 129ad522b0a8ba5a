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


def trees(rows: np.ndarray, splits: Sequence[float], least: float = 0.1, link: str = "NONE") -> onnx.ModelProto:
    """A classifier of ai.onnx.ml over two columns: class 1 is likely on one side of exactly one of the splits, and has
    a weight of `least` elsewhere, of which `link` makes a probability."""
    # Node 0 asks for column 0, nodes 1 and 2 for column 1; 3 to 6 are leaves.
    leaves = [least, 0.9, 0.9, least]
    node = helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "probabilities"],
        domain="ai.onnx.ml",
        post_transform=link,
        classlabels_int64s=[0, 1],
        nodes_treeids=[0] * 7,
        nodes_nodeids=list(range(7)),
        nodes_featureids=[0, 1, 1, 0, 0, 0, 0],
        nodes_modes=["BRANCH_GT"] * 3 + ["LEAF"] * 4,
        nodes_values=[splits[0], splits[1], splits[1], 0.0, 0.0, 0.0, 0.0],
        nodes_truenodeids=[1, 3, 5, 0, 0, 0, 0],
        nodes_falsenodeids=[2, 4, 6, 0, 0, 0, 0],
        class_treeids=[0] * 8,
        class_nodeids=[n for n in range(3, 7) for _ in range(2)],
        class_ids=[0, 1] * 4,
        class_weights=[w for p in leaves for w in (1 - p, p)],
    )
    graph = helper.make_graph(
        [node],
        "trees",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, rows.shape[1]])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, [None]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 2]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8)
