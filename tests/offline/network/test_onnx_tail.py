"""offline/network/onnx_tail.py and onnx_batch.py: what stands behind the last layer, and files for one batch size."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from demur.offline.network.onnx_network import load_onnx
from demur.service.inference.onnx_runtime import onnxruntime
from tests.support.onnx_files import perceptron

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(6, 2)).astype(np.float32)
CONSTANTS: dict[str, np.ndarray] = {
    "w": DRAW.normal(size=(5, 3)).astype(np.float32),
    "one": DRAW.normal(size=(5, 1)).astype(np.float32),
    "b": DRAW.normal(size=3).astype(np.float32),
    "c": np.array([0.5, 2.0, -3.0], np.float32),
    "s": np.array(4.0, np.float32),
    "axes": np.array([1], np.int64),
    "line": np.array([-1], np.int64),
    "place": np.array(1, np.int64),
    "places": np.array([2, 0], np.int64),
    "six": DRAW.normal(size=(5, 6)).astype(np.float32),
    "tasks": np.array([-1, 3, 2], np.int64),
    "begin": np.array(0, np.int64),
    "late": np.array(4, np.int64),
    "from the end": np.array(-5, np.int64),
    "last axis": np.array([2], np.int64),
}
LINEAR = helper.make_node("Gemm", ["h", "w", "b"], ["z"])
SINGLE = helper.make_node("MatMul", ["h", "one"], ["z"])
TAILS: dict[str, list[onnx.NodeProto]] = {
    "squeeze": [SINGLE, helper.make_node("Squeeze", ["z", "axes"], ["out"])],
    "reshape": [SINGLE, helper.make_node("Reshape", ["z", "line"], ["out"])],
    "flatten": [LINEAR, helper.make_node("Flatten", ["z"], ["out"], axis=1)],
    "column": [LINEAR, helper.make_node("Gather", ["z", "place"], ["out"], axis=1)],
    "columns": [LINEAR, helper.make_node("Gather", ["z", "places"], ["out"], axis=-1)],
    "temperature": [LINEAR, helper.make_node("Div", ["z", "s"], ["out"])],
    "units": [
        LINEAR,
        helper.make_node("Mul", ["c", "z"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["out"]),
    ],
    "from a constant": [LINEAR, helper.make_node("Sub", ["c", "z"], ["out"])],
    "less a constant": [LINEAR, helper.make_node("Sub", ["z", "c"], ["out"])],
    "a column in its unit": [
        LINEAR,
        helper.make_node("Mul", ["z", "c"], ["y"]),
        helper.make_node("Add", ["y", "s"], ["v"]),
        helper.make_node("Gather", ["v", "place"], ["u"], axis=1),
        helper.make_node("Mul", ["u", "s"], ["out"]),
    ],
}


# What looks like it and is on another axis: the layer changes nothing then.
STEPS = [helper.make_node("Unsqueeze", ["h", "axes"], ["u"]), helper.make_node("Concat", ["u"] * 5, ["steps"], axis=1)]
TAILS |= {
    "one task of several": [
        helper.make_node("MatMul", ["h", "six"], ["z"]),
        helper.make_node("Reshape", ["z", "tasks"], ["each"]),
        helper.make_node("Gather", ["each", "place"], ["out"], axis=1),
    ],
    "one step of a sequence": [
        *STEPS,
        helper.make_node("MatMul", ["steps", "w"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["z"]),
        helper.make_node("Gather", ["z", "begin"], ["out"], axis=1),
    ],
    "a late step of a sequence": [
        *STEPS,
        helper.make_node("MatMul", ["steps", "w"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["z"]),
        helper.make_node("Gather", ["z", "late"], ["out"], axis=1),
    ],
    "a step from the end of a sequence": [
        *STEPS,
        helper.make_node("MatMul", ["steps", "w"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["z"]),
        helper.make_node("Gather", ["z", "from the end"], ["out"], axis=1),
    ],
    "a number a step": [
        *STEPS,
        helper.make_node("MatMul", ["steps", "one"], ["z"]),
        helper.make_node("Squeeze", ["z", "last axis"], ["out"]),
    ],
}
FLAT = {"squeeze", "reshape", "column", "a column in its unit"}


@pytest.mark.parametrize("tail", TAILS)
def test_a_scale_a_shift_and_a_shape_go_into_the_last_layer(tail: str) -> None:
    model = perceptron(TAILS[tail], CONSTANTS)
    del model.graph.output[:]
    shape = ["n"] if tail in FLAT else ["n", "k"]
    model.graph.output.append(helper.make_tensor_value_info("out", TensorProto.FLOAT, shape))
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    found = load_onnx(model)(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.head = nn.Conv2d(1, 3, 3), nn.Linear(48, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(torch.relu(self.convolution(x)).flatten(1))
        return found


@pytest.mark.parametrize("batch", [1, 2])
def test_a_file_for_one_batch_size_takes_any(tmp_path: Path, batch: int) -> None:
    torch.manual_seed(0)
    network, x = Convolution().eval(), torch.randn(5, 1, 6, 6)
    torch.onnx.export(network, (x[:batch],), tmp_path / "net.onnx", dynamo=True, verbose=False)
    torch.testing.assert_close(load_onnx(tmp_path / "net.onnx")(x), network(x), rtol=1e-4, atol=1e-5)


def fixed(constants: dict[str, Any]) -> onnx.ModelProto:
    """A file for three examples, whose features are spread over as many by a constant shape."""
    nodes = [helper.make_node("Expand", ["h", "shape"], ["e"]), helper.make_node("Gemm", ["e", "w", "b"], ["out"])]
    return perceptron(nodes, CONSTANTS | constants, batch=3)


def test_another_batch_size_is_told_where_it_cannot_be_freed() -> None:
    network = load_onnx(fixed({"shape": np.array([3, 5], np.int64)}))
    assert network(torch.from_numpy(X[:3])).shape == (3, 3)
    with pytest.raises(RuntimeError, match=r"exported for 3 examples at a time.*torch\.export\.Dim\('batch'\)"):
        network(torch.from_numpy(X[:5]))


def test_inputs_that_are_missing_are_named() -> None:
    network = load_onnx(perceptron([helper.make_node("Gemm", ["h", "w", "b"], ["out"])], CONSTANTS, second="tokens"))
    with pytest.raises(ValueError, match="found the inputs 1 without names, expected 'x', 'tokens'"):
        network(torch.from_numpy(X))
    with pytest.raises(ValueError, match="found the inputs 'x', 'words', expected 'x', 'tokens'"):
        network(x=torch.from_numpy(X), words=torch.zeros(6, 1))
