"""offline/network/onnx_lines.py: what a file turned out to be."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from demur.offline.network.onnx_lines import file_lines
from demur.offline.network.onnx_network import load_onnx
from tests.support.onnx_files import perceptron, trees

DRAW = np.random.default_rng(0)
X = torch.from_numpy(DRAW.normal(size=(8, 2)).astype(np.float32))
CONSTANTS: dict[str, np.ndarray] = {
    "w": DRAW.normal(size=(5, 3)).astype(np.float32),
    "q": DRAW.integers(-100, 100, (5, 3)).astype(np.int8),
    "axis": np.array([0], np.int64),
}
LINEAR = helper.make_node("MatMul", ["h", "w"], ["z"])


def lines(nodes: list[object], **options: int | str) -> list[str]:
    return file_lines(load_onnx(perceptron(nodes, CONSTANTS, **options)), (X,), {})  # type: ignore[arg-type]


def difference(found: list[str]) -> float:
    (line,) = (line for line in found if line.startswith("alone and among 8 examples"))
    return float(line.split(" differ by ")[1].split()[0])


def test_a_linear_end() -> None:
    found = lines([LINEAR, helper.make_node("Softmax", ["z"], ["out"])], batch=4)
    assert found[0] == "inputs: x (batch, 2) float32; exported for 4, made for any number"
    assert found[1] == "output: 'out', 3 for each example; the softmax or sigmoid behind the last layer is left out"
    assert (
        found[2]
        == "last layer: linear, of 5 features: the posterior is over it and the added weights, which read these"
    )
    assert difference(found) < 1e-6
    assert found[4:] == ["work: 10 multiplications an example in matrices and convolutions"]


def test_trees() -> None:
    model = trees(X.numpy(), [0.0, 0.0])
    network = load_onnx(model).suited("classification", (X,), {}, labels=False)
    found = file_lines(network, (X,), {})
    assert found[1] == "output: 'probabilities', 2 for each example"
    assert "changes nothing, with log p as logits, and over the added weights, which read the inputs" in found[2]
    assert not any(line.startswith("work") for line in found)


@pytest.mark.parametrize(("kind", "name"), [(TensorProto.INT32, "int32"), (TensorProto.DOUBLE, "float64")])
def test_an_input_that_is_cast(kind: int, name: str) -> None:
    model = perceptron([helper.make_node("MatMul", ["h", "w"], ["out"])], CONSTANTS)
    model.graph.input[0].type.tensor_type.elem_type = kind
    model.graph.input[0].name = "own"
    model.graph.node.insert(0, helper.make_node("Cast", ["own"], ["x"], to=TensorProto.FLOAT))
    assert f", cast to {name}; " in file_lines(load_onnx(model), (X,), {})[0]


def test_examples_that_feel_each_other_show() -> None:
    assert difference(lines([LINEAR, helper.make_node("Softmax", ["z"], ["out"], axis=0)])) > 0.1
    found = lines(
        [
            helper.make_node("DynamicQuantizeLinear", ["h"], ["y", "scale", "zero"]),
            helper.make_node("MatMulInteger", ["y", "q", "zero"], ["whole"]),
            helper.make_node("Cast", ["whole"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["number", "scale"], ["out"]),
        ]
    )
    assert difference(found) > 1e-4
    assert "DynamicQuantizeLinear scales by the whole batch: quantise the network statically" in " ".join(found)
