"""service/inference/onnx_external.py: weights outside of the model are found wherever they can stand."""

import contextlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from demur.service.bundle import MODEL
from demur.service.inference.onnx_wire import BYTES, ExternalDataError, WireError, may_repeat, refuse_external_data
from tests.support.bundles import IR_VERSION, Synthetic, model_bytes, value_info
from tests.support.manifests import OPSET
from tests.support.tamper import put, refusal


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


GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*/bundle"))
Place = Callable[[onnx.TensorProto], onnx.ModelProto]


def message(number: int, content: bytes) -> bytes:
    """A field of wire type BYTES, in protobuf's wire format."""

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)

    return varint(number << 3 | BYTES) + varint(len(content)) + content


def external(location: str = "/etc/hostname") -> onnx.TensorProto:
    tensor = TensorProto(name="secret", data_type=TensorProto.FLOAT, dims=[4, 3])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def model(*nodes: onnx.NodeProto, initializer: tuple[onnx.TensorProto, ...] = ()) -> onnx.ModelProto:
    identity = helper.make_node("Identity", ["inputs"], ["mean"])
    ends = [value_info("inputs", ("batch", 4))], [value_info("mean", ("batch", 4))]
    graph = helper.make_graph([identity, *nodes], "g", *ends, list(initializer))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def constant(tensor: onnx.TensorProto) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["c"], value=tensor)


def branch(tensor: onnx.TensorProto) -> onnx.GraphProto:
    return helper.make_graph([constant(tensor)], "branch", [], [value_info("c", (4, 3))])


def sparse(tensor: onnx.TensorProto) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(values=tensor, dims=[4, 3])


def in_an_initializer(tensor: onnx.TensorProto) -> onnx.ModelProto:
    return model(initializer=(tensor,))


def in_a_constant(tensor: onnx.TensorProto) -> onnx.ModelProto:
    return model(constant(tensor))


def in_a_list_of_an_attribute(tensor: onnx.TensorProto) -> onnx.ModelProto:
    return model(helper.make_node("Odd", [], ["c"], many=[numpy_helper.from_array(np.ones(1)), tensor]))


def in_a_sparse_attribute(tensor: onnx.TensorProto) -> onnx.ModelProto:
    return model(helper.make_node("Constant", [], ["c"], sparse_value=sparse(tensor)))


def in_a_sparse_initializer(tensor: onnx.TensorProto) -> onnx.ModelProto:
    whole = model()
    whole.graph.sparse_initializer.append(sparse(tensor))
    return whole


def in_a_subgraph(tensor: onnx.TensorProto) -> onnx.ModelProto:
    inner = helper.make_node("If", ["yes"], ["d"], then_branch=branch(tensor), else_branch=branch(tensor))
    outer = helper.make_graph([inner], "outer", [], [value_info("d", (4, 3))])
    return model(helper.make_node("Loop", ["n", ""], ["e"], body=outer))


def in_a_function(tensor: onnx.TensorProto) -> onnx.ModelProto:
    whole = model()
    imports = [helper.make_opsetid("", OPSET)]
    whole.functions.append(helper.make_function("custom", "f", [], ["c"], [constant(tensor)], imports))
    return whole


def in_a_functions_default(tensor: onnx.TensorProto) -> onnx.ModelProto:
    whole = in_a_function(numpy_helper.from_array(np.ones(1)))
    whole.functions[0].attribute_proto.append(helper.make_attribute("default", tensor))
    return whole


def in_the_training_graph(tensor: onnx.TensorProto) -> onnx.ModelProto:
    whole = model()
    whole.training_info.add().algorithm.initializer.append(tensor)
    return whole


PLACES: list[Place] = [
    in_an_initializer,
    in_a_constant,
    in_a_list_of_an_attribute,
    in_a_sparse_attribute,
    in_a_sparse_initializer,
    in_a_subgraph,
    in_a_function,
    in_a_functions_default,
    in_the_training_graph,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_an_external_tensor_is_found_wherever_it_stands(place: Place) -> None:
    refuse_external_data(place(numpy_helper.from_array(np.ones((4, 3), np.float32), "inside")).SerializeToString())
    with pytest.raises(ExternalDataError, match="found the tensor 'secret' outside the model"):
        refuse_external_data(place(external()).SerializeToString())


@pytest.mark.parametrize("location", ["/etc/hostname", "weights.bin", "*/_ORT_MEM_ADDR_/*", "posterior.safetensors"])
def test_a_bundle_with_external_weights_is_refused_by_us(
    classification: Synthetic, folder: Path, location: str
) -> None:
    """Before onnxruntime sees it, whatever it would make of it."""
    graph = onnx.load_from_string((folder / MODEL).read_bytes())
    for tensor in graph.graph.initializer:
        if tensor.name == "weight":
            tensor.CopyFrom(external(location))
            tensor.name = "weight"
    put(folder, MODEL, graph.SerializeToString())
    refusal(folder, MODEL, "found the tensor 'weight' outside the model", "weights in the model file")


def raw(tensor: bytes) -> bytes:
    """A model whose graph has this initializer, byte by byte."""
    initializer = b"\x2a" + bytes([len(tensor)]) + tensor
    return b"\x3a" + bytes([len(initializer)]) + initializer


@pytest.mark.parametrize(
    "tensor",
    [
        b"\x70\x01",  # EXTERNAL
        b"\x70\x81\x80\x80\x80\x10",  # 2**32 + 1, of which onnxruntime's reader keeps 1
        b"\xf0\x80\x00\x01",  # the tag in more bytes than it needs
        b"\x70\x00\x70\x01",  # the last one counts
        b"\x70\x01\x70\x00",
        b"\x6a\x00",  # an entry of external_data, without a location
        b"\x70\x02",  # a place that is not defined yet
    ],
)
def test_no_way_of_writing_it_escapes(tensor: bytes) -> None:
    with pytest.raises(ExternalDataError):
        refuse_external_data(raw(tensor))


@pytest.mark.parametrize(
    "data",
    [
        raw(b"\xf0\x80\x80\x80\x10\x01"),  # a tag whose upper bits onnxruntime's reader drops
        raw(b"\x73\x70\x01\x74"),  # a group
        raw(b"\x00\x01"),  # the field 0
        b"\x3a\x7f\x00",  # longer than the model
        struct.pack("<I", 24) + b"ORTM" + bytes(60),  # onnxruntime's own format
    ],
)
def test_what_readers_could_understand_differently_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        refuse_external_data(data)


def test_graphs_inside_graphs_have_an_end() -> None:
    graph = b""
    for _ in range(40):
        graph = message(1, message(5, message(6, graph)))  # a graph's node's attribute's graph
    with pytest.raises(WireError, match="nested too deep"):
        refuse_external_data(message(7, graph))


@pytest.mark.parametrize("bundle", GOLDEN, ids=lambda folder: folder.parent.name)
def test_what_was_exported_is_whole(bundle: Path) -> None:
    refuse_external_data((bundle / MODEL).read_bytes())


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_or_refused(noise: bytes) -> None:
    for data in (noise, raw(noise[:100])):
        try:
            refuse_external_data(data)
        except (WireError, ExternalDataError):
            continue
