"""service/inference/onnx_loops.py: what may repeat is told from what may not, and other bytes are an error of ours."""

import contextlib

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from demur.service.bundle import MODEL
from demur.service.inference.onnx_loops import may_repeat
from demur.service.inference.onnx_wire import WireError
from tests.support.bundles import Synthetic, model_bytes, value_info


def branches() -> onnx.GraphProto:
    """A graph with a node whose branches are graphs of their own."""

    def branch(name: str, constant: str) -> onnx.GraphProto:
        node = helper.make_node("Add", ["doubled", constant], [f"{name}_out"])
        return helper.make_graph([node], name, [], [value_info(f"{name}_out", ("batch", 2))])

    nodes = [
        helper.make_node("Mul", ["inputs", "two"], ["doubled"]),
        helper.make_node("If", ["yes"], ["mean"], then_branch=branch("a", "two"), else_branch=branch("b", "three")),
        helper.make_node("Sub", ["inputs", "unused"], ["variance"]),
    ]
    constants = {"two": np.float32(2), "three": np.float32(3), "yes": np.bool_(True), "unused": np.float32(1)}
    return helper.make_graph(
        nodes,
        "branches",
        [value_info("inputs", ("batch", 2))],
        [value_info("mean", ("batch", 2), TensorProto.FLOAT), value_info("variance", ("batch", 2))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )


def test_what_may_repeat_is_known_by_its_graphs(classification: Synthetic) -> None:
    assert not may_repeat((classification.path / MODEL).read_bytes())
    model = onnx.load_from_string(model_bytes(branches()))
    assert may_repeat(model.SerializeToString())
    del model.graph.node[1]
    assert not may_repeat(model.SerializeToString())
    model.functions.add(name="hidden", domain="own")
    assert may_repeat(model.SerializeToString())


@given(st.binary(max_size=200), st.integers(0, 5000))
def test_bytes_that_are_no_model_are_an_error_of_ours(classification: Synthetic, noise: bytes, place: int) -> None:
    whole = (classification.path / MODEL).read_bytes()
    for data in (noise, whole[: place % len(whole)], whole[: place % len(whole)] + noise + whole[place % len(whole) :]):
        with contextlib.suppress(WireError):
            may_repeat(data)
