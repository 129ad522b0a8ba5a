"""Hostile graphs and numbers in a bundle whose hashes are right: refused when it is loaded, never later."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from demur.service.bundle import MANIFEST, MODEL, BundleError, InputSpec
from demur.service.codec.arrays import InputLimits
from demur.service.codec.images import array_from_images
from demur.service.inference.predictor import NonFinitePrediction, Predictor, check_finite
from tests.support.bundles import IR_VERSION, Synthetic, graph_of, value_info
from tests.support.client import base64_text, encoded
from tests.support.manifests import OPSET
from tests.support.tamper import Place, copy_bundle, load_json, put, refusal, replaced, save_json

Change = Callable[[onnx.GraphProto], None]


def changed_model(synthetic: Synthetic, *changes: Change) -> bytes:
    """The bundle's graph with some changes; unlike the bundle's own it is not checked."""
    graph = graph_of(synthetic)
    for change in changes:
        change(graph)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    data: bytes = model.SerializeToString()
    return data


def batch_size(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1


def input_batch_size(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7


def free_width(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"


def renamed_input(graph: onnx.GraphProto) -> None:
    graph.input[0].name = graph.node[0].input[0] = "x"


def renamed_output(graph: onnx.GraphProto) -> None:
    graph.node[2].output[0] = graph.output[0].name = "logits"


def second_input(graph: onnx.GraphProto) -> None:
    graph.input.append(value_info("more", ("batch", 4)))


def second_output(graph: onnx.GraphProto) -> None:
    graph.output.append(value_info("flat", ("batch", 4)))


def no_variance(graph: onnx.GraphProto) -> None:
    del graph.output[1]


def summed_variance(graph: onnx.GraphProto) -> None:
    del graph.node[-1].attribute[:]  # keeps the dimension
    graph.output[1].CopyFrom(value_info("variance", ("batch", 3, 1)))


def swapped_outputs(graph: onnx.GraphProto) -> None:
    del graph.node[-1].attribute[:]
    graph.node[2].output[0], graph.node[-1].output[0] = "variance", "mean"
    mean, variance = value_info("mean", ("batch", 3, 1)), value_info("variance", ("batch", 3))
    graph.output[0].CopyFrom(mean)
    graph.output[1].CopyFrom(variance)


def double_mean(graph: onnx.GraphProto) -> None:
    graph.node[2].output[0] = "single"
    graph.node.append(helper.make_node("Cast", ["single"], ["mean"], to=TensorProto.DOUBLE))
    graph.output[0].CopyFrom(value_info("mean", ("batch", 3), TensorProto.DOUBLE))


def unknown_operator(graph: onnx.GraphProto) -> None:
    graph.node[2].op_type = "FormatDisk"


def reshape_to(*shape: int) -> Change:
    def change(graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            if tensor.name == "jacobian_shape":
                tensor.CopyFrom(numpy_helper.from_array(np.array(shape, np.int64), "jacobian_shape"))

    return change


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        batch_size,
        input_batch_size,
        free_width,
        renamed_input,
        renamed_output,
        second_input,
        second_output,
        no_variance,
        summed_variance,
        swapped_outputs,
        double_mean,
        unknown_operator,
    )
} | {"transposed_jacobian": reshape_to(-1, 6, 3), "jacobian_of_fixed_batch": reshape_to(2, 3, 6)}


@pytest.mark.parametrize("case", CHANGES)
def test_a_graph_of_another_signature_is_refused(classification: Synthetic, folder: Path, case: str) -> None:
    put(folder, MODEL, changed_model(classification, CHANGES[case]))
    refusal(folder, MODEL)


@pytest.mark.parametrize("case", ["garbage", "empty", "zeros", "text", "truncated", "another opset"])
def test_what_is_no_graph_is_refused(classification: Synthetic, folder: Path, case: str) -> None:
    good = (folder / MODEL).read_bytes()
    future = onnx.load_model_from_string(good)
    future.opset_import[0].version = 999
    data = {
        "garbage": np.random.default_rng(0).bytes(5000),
        "empty": b"",
        "zeros": bytes(5000),
        "text": b"ceci n'est pas un modele",
        "truncated": good[: len(good) // 2],
        "another opset": future.SerializeToString(),
    }[case]
    put(folder, MODEL, data)
    refusal(folder, MODEL, "onnxruntime cannot open it")


@pytest.mark.parametrize("place", ["absolute", "beside the bundle", "in the working folder", "in the bundle"])
def test_weights_outside_the_model_file_are_refused(
    classification: Synthetic, folder: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever file the graph names, none is read: neither by its path nor relative to where the service runs."""
    weights = np.ascontiguousarray(classification.weight.T).tobytes()
    working = folder.parent / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    for target in (folder.parent / "weights.bin", working / "weights.bin"):
        target.write_bytes(weights)
    location = {
        "absolute": str(folder.parent / "weights.bin"),
        "beside the bundle": "../weights.bin",
        "in the working folder": "weights.bin",
        "in the bundle": "posterior.safetensors",
    }[place]

    def outside(graph: onnx.GraphProto) -> None:
        tensor = graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", str(len(weights)))):
            tensor.external_data.add(key=key, value=value)

    put(folder, MODEL, changed_model(classification, outside))
    refusal(folder, MODEL)


def sample_inputs(spec: InputSpec) -> npt.NDArray[np.float32]:
    """Two examples; a decoded picture where the bundle takes pictures."""
    if spec.image is None:
        return np.ones((2, *spec.shape), np.float32)
    picture = Image.fromarray(np.arange(20, dtype=np.uint8).reshape(spec.shape[1:]))
    return array_from_images([base64_text(encoded(picture))] * 2, spec, InputLimits(max_rows=2, max_pixels=1000))


EXTREMES: list[tuple[str, Place, Any]] = [
    ("classification", ("temperature",), 1e-300),
    ("classification", ("temperature",), 1e-30),
    ("classification", ("temperature",), 1e200),
    ("classification", ("temperature",), 1e299),
    ("regression", ("sigma_noise",), 1e-300),
    ("regression", ("sigma_noise",), 1e200),
    ("images", ("input", "image", "scale"), 1e200),
    ("images", ("input", "image", "std"), [1e-200]),
    ("images", ("input", "image", "mean"), [1e200]),
]


@pytest.mark.parametrize(("name", "place", "value"), EXTREMES, ids=lambda item: str(item))
def test_extreme_numbers_are_refused_or_give_finite_answers(
    name: str, place: Place, value: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A bundle that loads never makes a prediction fail, whatever the numbers in its manifest."""
    synthetic: Synthetic = request.getfixturevalue(name)
    folder = copy_bundle(synthetic.path, tmp_path / "bundle")
    save_json(folder, replaced(load_json(folder), place, value))
    try:
        predictor = Predictor.load(folder)
        prediction = predictor.predict(sample_inputs(predictor.manifest.input))
        check_finite(prediction)
    except (BundleError, NonFinitePrediction):
        return
    assert np.isfinite(prediction.score).all()
    for part in (prediction.probabilities, prediction.map_probabilities, prediction.std, prediction.p_value):
        assert part is None or np.isfinite(part).all()


def test_fewer_scores_than_the_rate_needs_are_refused(folder: Path) -> None:
    """With an infinite threshold nothing would ever be rejected."""
    save_json(folder, replaced(load_json(folder), ("calibration", "false_reject_rate"), 0.01))
    refusal(folder, MANIFEST, f"the calibration scores give {math.inf}")


def test_numbers_with_a_fraction_are_no_tokens(tokens: Synthetic) -> None:
    with pytest.raises(ValueError, match=r"found 0.5 at \[0, 0\], expected whole numbers, such as of tokens"):
        Predictor.load(tokens.path).predict(np.full((2, 2), 0.5))
