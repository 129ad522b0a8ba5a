"""Bundles with valid hashes and harmful graphs: they never end, or take all memory."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from demur.service.bundle import MODEL
from tests.support.bundles import FEATURE_SPEC, value_info, write_linear
from tests.support.tamper import load_json, put, replaced, save_json

FOREVER, HUGE = 2**62, 2**36


def bundle(folder: Path, name: str) -> Path:
    """A sound bundle."""
    return write_linear(folder, outputs=3, spec=FEATURE_SPEC, name=name).path


def _changed(folder: Path, change: Callable[[onnx.GraphProto], None]) -> Path:
    model = onnx.load_from_string((folder / MODEL).read_bytes())
    change(model.graph)
    put(folder, MODEL, model.SerializeToString())
    return folder


def _constant(graph: onnx.GraphProto, name: str, value: object, kind: type) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array(value, kind), name))


def endless(folder: Path, name: str = "endless") -> Path:
    """A graph that loops over its inputs for ever."""

    def change(graph: onnx.GraphProto) -> None:
        nodes = [helper.make_node("Identity", [f"{one}_in"], [f"{one}_out"]) for one in ("go_on", "x")]
        body = helper.make_graph(
            nodes,
            "body",
            [
                value_info("turn", (), TensorProto.INT64),
                value_info("go_on_in", (), TensorProto.BOOL),
                value_info("x_in", ("batch", 4)),
            ],
            [value_info("go_on_out", (), TensorProto.BOOL), value_info("x_out", ("batch", 4))],
        )
        graph.node[0].input[0] = "looped"
        graph.node.insert(0, helper.make_node("Loop", ["turns", "yes", "inputs"], ["looped"], body=body))
        _constant(graph, "turns", FOREVER, np.int64)
        _constant(graph, "yes", True, np.bool_)

    return _changed(bundle(folder, name), change)


def greedy(folder: Path, name: str = "greedy") -> Path:
    """A graph that allocates 256 GiB of zeros."""

    def change(graph: onnx.GraphProto) -> None:
        graph.node[0].input[0] = "shifted"
        graph.node.insert(0, helper.make_node("Add", ["inputs", "sum"], ["shifted"]))
        graph.node.insert(0, helper.make_node("ReduceSum", ["zeros"], ["sum"], keepdims=0))
        graph.node.insert(0, helper.make_node("Expand", ["first", "many"], ["zeros"]))
        graph.node.insert(0, helper.make_node("ReduceMax", ["inputs"], ["first"], keepdims=0))
        _constant(graph, "many", [HUGE], np.int64)

    return _changed(bundle(folder, name), change)


def many_dimensions(folder: Path, name: str = "dimensions") -> Path:
    """An input of 70 dimensions, in the manifest and in the graph."""

    def change(graph: onnx.GraphProto) -> None:
        graph.input[0].CopyFrom(value_info("inputs", ("batch", 4, *[1] * 69)))

    _changed(bundle(folder, name), change)
    return _manifest(folder, [4, *[1] * 69])


def huge_input(folder: Path, name: str = "huge") -> Path:
    """An example of 4 TiB, in the manifest and in the graph."""

    def change(graph: onnx.GraphProto) -> None:
        graph.input[0].CopyFrom(value_info("inputs", ("batch", 2**20, 2**20)))

    _changed(bundle(folder, name), change)
    return _manifest(folder, [2**20, 2**20])


def _manifest(folder: Path, shape: list[int]) -> Path:
    data = replaced(load_json(folder), ("input", "feature_names"), None)
    save_json(folder, replaced(data, ("input", "shape"), shape))
    return folder
