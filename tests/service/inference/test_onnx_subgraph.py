"""service/inference/onnx_subgraph.py: a part of a graph computes what the whole does, and is as small as can be."""

import contextlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from demur.service.bundle import MODEL
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.inference.onnx_subgraph import extract_subgraph, may_repeat
from demur.service.inference.onnx_wire import WireError
from demur.service.inference.predictor import Predictor
from tests.support.bundles import Synthetic, model_bytes, value_info

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*/bundle"))


def answers(model: bytes, outputs: list[str], inputs: object) -> list[object]:
    found: list[object] = onnxruntime.InferenceSession(model).run(outputs, {"inputs": inputs})
    return found


@pytest.mark.parametrize("bundle", GOLDEN, ids=lambda folder: folder.parent.name)
def test_the_mean_alone_is_the_same_mean(bundle: Path) -> None:
    whole = (bundle / MODEL).read_bytes()
    part = extract_subgraph(whole, ["mean"])
    graph = onnx.load_from_string(part)
    onnx.checker.check_model(graph)
    assert [output.name for output in graph.graph.output] == ["mean"]
    assert len(graph.graph.node) < len(onnx.load_from_string(whole).graph.node)
    shape = Predictor.load(bundle).manifest.input.shape
    inputs = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    np.testing.assert_array_equal(answers(part, ["mean"], inputs)[0], answers(whole, ["mean"], inputs)[0])


def test_only_what_is_needed_stays(classification: Synthetic) -> None:
    part = onnx.load_from_string(extract_subgraph((classification.path / MODEL).read_bytes(), ["mean"])).graph
    assert [node.op_type for node in part.node] == ["Reshape", "MatMul", "Add"]
    assert {tensor.name for tensor in part.initializer} == {"weight", "bias", "flat_shape"}


def test_all_outputs_are_the_whole_graph(classification: Synthetic) -> None:
    whole = (classification.path / MODEL).read_bytes()
    assert onnx.load_from_string(extract_subgraph(whole, ["mean", "variance"])) == onnx.load_from_string(whole)


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


def test_what_a_subgraph_reads_from_outside_stays() -> None:
    part = extract_subgraph(model_bytes(branches()), ["mean"])
    assert {tensor.name for tensor in onnx.load_from_string(part).graph.initializer} == {"two", "three", "yes"}
    inputs = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(answers(part, ["mean"], inputs)[0], np.full((3, 2), 4, np.float32))


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
            extract_subgraph(data, ["mean"])


def test_the_plain_network_is_opened_only_where_it_is_asked_for(classification: Synthetic) -> None:
    inputs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    with pytest.raises(RuntimeError, match="plain_too"):
        Predictor.load(classification.path).predict_plain(inputs)
    predictor = Predictor.load(classification.path, plain_too=True)
    plain, full = predictor.predict_plain(inputs), predictor.predict(inputs)
    np.testing.assert_allclose(plain.mean, full.mean, rtol=1e-6)
    assert plain.map_probabilities is not None
    assert full.map_probabilities is not None
    np.testing.assert_allclose(plain.map_probabilities, full.map_probabilities, rtol=1e-6)
