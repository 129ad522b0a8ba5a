"""offline/network/onnx_end.py: ends that are no linear layer, and inputs of any type, as onnxruntime has them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from demur.offline import FitConfig, fit_bundle
from demur.offline.features.activations import INPUTS
from demur.offline.features.layers import choose_layers
from demur.offline.network.call_order import CallOrder
from demur.offline.network.onnx_network import load_onnx
from demur.offline.network.unsupported import UnsupportedModelError
from demur.service.format.manifest import Task
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.inference.predictor import Predictor
from tests.support.onnx_files import perceptron, trees

Array = np.ndarray
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(40, 2)).astype(np.float32)
CONSTANTS: dict[str, Array] = {
    "w": DRAW.normal(size=(5, 3)).astype(np.float32),
    "b": DRAW.normal(size=3).astype(np.float32),
    "one": DRAW.normal(size=(5, 1)).astype(np.float32),
    "s": np.array(4.0, np.float32),
    "unit": np.array(1.0, np.float32),
    "line": np.array([-1], np.int64),
    "place": np.array(1, np.int64),
    "axis": np.array([1], np.int64),
}
LINEAR = helper.make_node("Gemm", ["h", "w", "b"], ["z"])
SPELLED = [
    helper.make_node("Exp", ["z"], ["e"]),
    helper.make_node("ReduceSum", ["e", "axis"], ["sum"]),
    helper.make_node("Div", ["e", "sum"], ["out"]),
]


def answers(model: onnx.ModelProto, **inputs: Array) -> list[Array]:
    found: list[Array] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    return found


def logits(model: onnx.ModelProto, x: Array = X, task: Task = "classification", labels: bool = False) -> Array:
    """As a fit takes them, for examples like these."""
    inputs = torch.from_numpy(x)
    with torch.no_grad():
        found: Array = load_onnx(model).suited(task, (inputs,), {}, labels)(inputs).numpy()
    return found


def softmax(values: Array) -> Array:
    return np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)


AS_THEY_ARE: dict[str, list[onnx.NodeProto]] = {
    "relu": [LINEAR, helper.make_node("Relu", ["z"], ["out"])],
    "one over": [LINEAR, helper.make_node("Div", ["s", "z"], ["out"])],
    "scaled probabilities": [
        LINEAR,
        helper.make_node("Softmax", ["z"], ["p"]),
        helper.make_node("Mul", ["p", "s"], ["out"]),
    ],
}


@pytest.mark.parametrize("end", AS_THEY_ARE)
def test_the_outputs_stay_as_they_are(end: str) -> None:
    model = perceptron(AS_THEY_ARE[end], CONSTANTS)
    np.testing.assert_allclose(logits(model), answers(model, x=X)[0], rtol=1e-5, atol=1e-6)
    network = load_onnx(model)
    assert network.head.weight.shape == (3, 5 + 3), "the last tensor that holds more is read, too"
    assert not network.reads_outputs
    assert network.layer.changes_nothing
    assert network.layer.read == "h"


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_a_softmax_that_is_spelled_out(opset: int) -> None:
    model = perceptron([LINEAR, *SPELLED], CONSTANTS, opset=opset)
    np.testing.assert_allclose(softmax(logits(model)), answers(model, x=X)[0], rtol=1e-4)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("opset", [7, 11, 13, 21])
def test_a_softmax_of_any_version_is_left_out(op: str, opset: int) -> None:
    model = perceptron([LINEAR, helper.make_node(op, ["z"], ["out"], axis=1)], CONSTANTS, opset=opset)
    network = load_onnx(model)
    found = logits(model)
    expected = answers(model, x=X)[0]
    np.testing.assert_allclose(softmax(found), expected if op == "Softmax" else np.exp(expected), rtol=1e-4)
    assert network.layer.left_out
    assert not network.layer.changes_nothing


@pytest.mark.parametrize("axis", [0, -2])
def test_a_softmax_over_the_examples_makes_no_probabilities(axis: int) -> None:
    model = perceptron([LINEAR, helper.make_node("Softmax", ["z"], ["out"], axis=axis)], CONSTANTS)
    found, values = logits(model, X[:8]), answers(model, x=X[:8])[0]
    np.testing.assert_allclose(softmax(found), values / values.sum(axis=1, keepdims=True), rtol=1e-3)


def test_a_sigmoid_that_is_spelled_out_gives_its_odds() -> None:
    nodes = [
        LINEAR,
        helper.make_node("Neg", ["z"], ["n"]),
        helper.make_node("Exp", ["n"], ["e"]),
        helper.make_node("Add", ["e", "unit"], ["sum"]),
        helper.make_node("Div", ["unit", "sum"], ["out"]),
    ]
    model = perceptron(nodes, CONSTANTS)
    found = logits(model, labels=True)
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), answers(model, x=X)[0], rtol=1e-3, atol=1e-5)
    assert logits(model).argmax(axis=1).tolist() == answers(model, x=X)[0].argmax(axis=1).tolist()


def test_values_between_0_and_1_stay_values() -> None:
    """Of a regression, which a sigmoid keeps in its range."""
    model = perceptron([LINEAR, helper.make_node("Sigmoid", ["z"], ["out"])], CONSTANTS)
    np.testing.assert_allclose(logits(model, task="regression"), answers(model, x=X)[0], rtol=1e-5)
    expected = np.log(1 / (1 / answers(model, x=X)[0] - 1))
    np.testing.assert_allclose(logits(model, labels=True), expected, rtol=1e-3, atol=1e-4)


def test_the_class_alone_gives_what_it_is_chosen_from() -> None:
    model = perceptron([LINEAR, helper.make_node("ArgMax", ["z"], ["out"], axis=1)], CONSTANTS, kind=TensorProto.INT64)
    assert logits(model).argmax(axis=1).tolist() == answers(model, x=X)[0][:, 0].tolist()


REFUSED: dict[str, tuple[list[onnx.NodeProto], str]] = {
    "all in a line": ([LINEAR, helper.make_node("Reshape", ["z", "line"], ["out"])], r"'out' of shape \(24,\) for 8"),
    "an example chosen": ([LINEAR, helper.make_node("Gather", ["z", "place"], ["out"], axis=0)], r"of shape \(3,\)"),
    "no number": ([helper.make_node("Cast", ["h"], ["out"], to=TensorProto.INT64)], "the outputs out"),
    "a table an example": (
        [
            helper.make_node("Unsqueeze", ["h", "axis"], ["row"]),
            helper.make_node("Relu", ["row"], ["r"]),
            helper.make_node("Concat", ["r", "r"], ["out"], axis=1),
        ],
        r"'out' of shape \(8, 2, 5\) for 8 examples, expected .*onnx\.utils\.extract_model",
    ),
}


@pytest.mark.parametrize("end", REFUSED)
def test_what_is_no_row_of_numbers_is_refused_at_once(end: str) -> None:
    nodes, named = REFUSED[end]
    kind = TensorProto.INT64 if end == "no number" else TensorProto.FLOAT
    with pytest.raises(UnsupportedModelError, match=named):
        load_onnx(perceptron(nodes, CONSTANTS, kind=kind))


FAR = 1000 * X  # where random numbers are not


@pytest.mark.parametrize("sort", ["logits", "probabilities"])
def test_the_users_own_examples_tell_probabilities(sort: str) -> None:
    """Logits of random numbers may lie between 0 and 1, and probabilities of them be none."""
    thousand = CONSTANTS | {"thousand": np.array(1000.0, np.float32)}
    if sort == "logits":
        nodes = [
            LINEAR,
            helper.make_node("Abs", ["z"], ["size"]),
            helper.make_node("Div", ["size", "thousand"], ["out"]),
        ]
    else:
        nodes = [LINEAR, helper.make_node("Log", ["h"], ["l"]), helper.make_node("Softmax", ["l"], ["p"])]
        nodes += [helper.make_node("Identity", ["p"], ["q"]), helper.make_node("Max", ["q", "q"], ["out"])]
    model = perceptron(nodes, thousand)
    x = FAR if sort == "logits" else np.abs(X) + 1
    with np.errstate(all="ignore"):
        expected = answers(model, x=x)[0]
    found = logits(model, x)
    if sort == "logits":
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    else:
        np.testing.assert_allclose(softmax(found), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("off", [-1e-6, 2e-6])
def test_votes_that_do_not_quite_sum_to_one_are_probabilities(off: float) -> None:
    nodes = [LINEAR, helper.make_node("Softmax", ["z"], ["p"]), helper.make_node("Add", ["p", "off"], ["out"])]
    model = perceptron(nodes, CONSTANTS | {"off": np.array(off, np.float32)})
    np.testing.assert_allclose(softmax(logits(model, 30 * X)), answers(model, x=30 * X)[0], atol=1e-5)


def test_outputs_in_float64_are_taken() -> None:
    nodes = [LINEAR, *SPELLED[:2], helper.make_node("Div", ["e", "sum"], ["p"])]
    nodes.append(helper.make_node("Cast", ["p"], ["out"], to=TensorProto.DOUBLE))
    model = perceptron(nodes, CONSTANTS, kind=TensorProto.DOUBLE)
    np.testing.assert_allclose(softmax(logits(model)), answers(model, x=X)[0], rtol=1e-4)


def test_of_several_outputs_the_probabilities_are_taken_and_the_others_named() -> None:
    model = perceptron([LINEAR, helper.make_node("Softmax", ["z"], ["out"])], CONSTANTS)
    model.graph.output.insert(0, helper.make_tensor_value_info("h", TensorProto.FLOAT, ["n", 5]))
    network = load_onnx(model)
    assert network.head.weight.shape == (3, 5)
    assert (network.file.output, network.file.others) == ("out", ("h",))


def test_a_tensor_inside_that_folds_the_examples_is_not_read() -> None:
    nodes = [
        LINEAR,
        helper.make_node("Reshape", ["h", "fold"], ["f"]),
        helper.make_node("Reshape", ["f", "back"], ["k"]),
        helper.make_node("Relu", ["k"], ["out"]),
    ]
    folds = {"fold": np.array([-1, 1], np.int64), "back": np.array([-1, 5], np.int64)}
    model = perceptron(nodes, CONSTANTS | folds)
    np.testing.assert_allclose(logits(model), answers(model, x=X)[0], rtol=1e-5)


def test_what_depends_on_how_long_an_input_is_is_refused() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["out"])],
        "longer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "length"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", "length"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(UnsupportedModelError, match=r"'out' of shape \(8, 2048\).*\(8, 3072\) where inputs are longer"):
        load_onnx(model)


def test_an_input_that_is_none_of_the_examples_is_refused_with_its_shape() -> None:
    model = perceptron([helper.make_node("Mul", ["h", "rate"], ["out"])], CONSTANTS)
    model.graph.input.append(helper.make_tensor_value_info("rate", TensorProto.FLOAT, []))
    with pytest.raises(UnsupportedModelError, match=r"8 examples of random .*\(x batch x 2, rate without axes\)"):
        load_onnx(model)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (TensorProto.DOUBLE, torch.float32),
        (TensorProto.FLOAT16, torch.float32),
        (TensorProto.UINT8, torch.float32),
        (TensorProto.INT32, torch.int64),
    ],
)
def test_an_input_of_another_type_is_cast(kind: int, given: torch.dtype) -> None:
    model = perceptron([helper.make_node("Gemm", ["h", "w", "b"], ["out"])], CONSTANTS)
    model.graph.input[0].type.tensor_type.elem_type = kind
    model.graph.node[0].input[0] = "plain"
    model.graph.node.insert(0, helper.make_node("Cast", ["x"], ["plain"], to=TensorProto.FLOAT))
    whole = np.round(3 * np.abs(X)).astype(helper.tensor_dtype_to_np_dtype(kind))
    network = load_onnx(model)
    with torch.no_grad():
        found = network(torch.from_numpy(whole.astype(np.float64)).to(given)).numpy()
    np.testing.assert_allclose(found, answers(model, x=whole)[0], rtol=1e-4, atol=1e-5)
    assert network.body.inputs() == {"x": "tensor(float)" if given == torch.float32 else "tensor(int64)"}


def test_probabilities_in_a_mapping_are_taken_out_of_it() -> None:
    plain = trees(X, [0.3, -0.2])
    mapped = onnx.ModelProto()
    mapped.CopyFrom(plain)
    values = mapped.graph.output[1].name
    mapped.graph.node.append(
        helper.make_node("ZipMap", [values], ["mapping"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    )
    element = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    mapped.graph.output[1].CopyFrom(helper.make_value_info("mapping", helper.make_sequence_type_proto(element)))
    np.testing.assert_array_equal(logits(mapped), logits(plain))


@pytest.mark.parametrize(
    ("link", "least", "expected"), [("NONE", 0.0, -6.907), ("NONE", 0.1, -2.197), ("SOFTMAX", -4.5, -10.0)]
)
def test_what_trees_vote_for_is_never_impossible_and_what_is_boosted_keeps_its_digits(
    link: str, least: float, expected: float
) -> None:
    """Of rare events all probabilities are below what votes can tell."""
    found = logits(trees(X, [0.3, -0.2], least, link))
    assert (found[:, 1] - found[:, 0]).min() == pytest.approx(expected, abs=1e-3)


def test_trees_are_fitted_and_served(tmp_path: Path) -> None:
    """Their answers stay theirs; what lies far from the columns' range is rejected, which no tree would tell."""
    rows = np.random.default_rng(1).normal(size=(300, 2)).astype(np.float32)
    noise = np.random.default_rng(2).random(300) < 0.1
    labels = ((rows[:, 0] > 0.3) ^ (rows[:, 1] > -0.2) ^ noise).astype(int)
    model = trees(rows, [0.3, -0.2])
    before = model.SerializeToString(deterministic=True)
    network = load_onnx(model)
    assert model.SerializeToString(deterministic=True) == before
    layers = choose_layers(network, torch.from_numpy(rows[:2]), "table", "head")
    assert layers is not None
    assert layers.link == (INPUTS,)
    path = fit_bundle(
        model,
        (rows[:150], labels[:150]),
        tmp_path / "bundle",
        calibration_loader=(rows[150:], labels[150:]),
        config=FitConfig(false_reject_rate=0.1),
    )
    predictor = Predictor.load(path)
    found = predictor.predict(rows)
    assert found.probabilities is not None
    assert found.probabilities.argmax(axis=1).tolist() == answers(model, x=rows)[1].argmax(axis=1).tolist()
    assert predictor.predict(30 + rows).rejected.all()
    assert found.rejected.mean() < 0.2


def test_the_work_of_the_file_counts() -> None:
    network = load_onnx(perceptron([LINEAR, *SPELLED], CONSTANTS))
    assert network.body.multiply_adds([2]) == 2 * 5 + 5 * 3
    assert CallOrder.of(network, torch.from_numpy(X[:1])).multiply_adds == 2 * 5 + 5 * 3 + network.head.weight.numel()


def test_the_work_of_an_image_follows_from_its_size() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3]),
            helper.make_node("GlobalAveragePool", ["c"], ["p"]),
            helper.make_node("Flatten", ["p"], ["out"]),
        ],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, "height", "width"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(DRAW.normal(size=(4, 2, 3, 3)).astype(np.float32), "w")],
    )
    network = load_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert network.body.multiply_adds([2, 12, 10]) == 10 * 8 * 4 * 2 * 9


@pytest.mark.parametrize("axis", [-1, 0])
def test_a_softmax_that_onnx_converts_is_left_out(axis: int) -> None:
    """Where it does not know the shape, it flattens what goes into one of an old version, and reshapes what comes."""
    nodes = [helper.make_node("MatMul", ["k", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["z"])]
    shape = [helper.make_node("Shape", ["h"], ["s5"]), helper.make_node("Reshape", ["h", "s5"], ["k"])]
    end = [
        helper.make_node("Shape", ["z"], ["shape"]),
        helper.make_node("Flatten", ["z"], ["f"], axis=1),
        helper.make_node("Softmax", ["f"], ["q"], axis=axis),
        helper.make_node("Reshape", ["q", "shape"], ["out"]),
    ]
    model = perceptron([*shape, *nodes, *end], CONSTANTS)
    network = load_onnx(model)
    assert network.layer.changes_nothing == (axis == 0), "one over the examples is none"
    if axis == 0:
        return
    assert network.head.weight.shape == (3, 5)
    np.testing.assert_allclose(softmax(logits(model)), answers(model, x=X)[0], rtol=1e-4)


def test_sound_may_need_many_samples() -> None:
    constants = {"kernel": DRAW.normal(size=(4, 1, 200)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Tanh", ["f"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "sound",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, "length"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert load_onnx(model).head.weight.shape[0] == 4


def with_labels(labels: Array) -> onnx.ModelProto:
    """A network with labels by the place of the largest, as scikit-learn's converter writes them."""
    nodes = [
        LINEAR,
        helper.make_node("ArgMax", ["z"], ["largest"], axis=1, keepdims=0),
        helper.make_node("ArrayFeatureExtractor", ["labels", "largest"], ["label"], domain="ai.onnx.ml"),
        helper.make_node("Softmax", ["z"], ["out"]),
    ]
    model = perceptron(nodes, CONSTANTS)
    kind = TensorProto.STRING if labels.dtype.kind == "U" else TensorProto.INT64
    values = [each.encode() for each in labels.tolist()] if labels.dtype.kind == "U" else labels.tolist()
    model.graph.initializer.append(helper.make_tensor("labels", kind, [len(labels)], values))
    model.graph.output.append(helper.make_tensor_value_info("label", kind, [1, None]))
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return model


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (np.array(["c", "a", "b"]), ("c", "a", "b")),
        (np.array([10, 15, 20]), ("10", "15", "20")),
        (np.arange(3), ()),
    ],
)
def test_names_of_classes_are_those_that_labels_are_taken_from(labels: Array, names: tuple[str, ...]) -> None:
    assert load_onnx(with_labels(labels)).file.class_names == names


def test_a_file_without_inputs_is_refused() -> None:
    node = helper.make_node("Identity", ["c"], ["out"])
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [8, 3])]
    constant = numpy_helper.from_array(np.zeros((8, 3), np.float32), "c")
    model = helper.make_model(helper.make_graph([node], "none", [], outputs, [constant]), ir_version=8)
    with pytest.raises(UnsupportedModelError, match="found no inputs"):
        load_onnx(model)


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("UINT8", 0, 255), ("INT8", -128, 127), ("INT16", -(2**15), 2**15 - 1), ("UINT32", 0, 2**32 - 1), ("BOOL", 0, 1)],
)
def test_numbers_that_a_file_s_type_has_not_are_refused_and_later_the_nearest(kind: str, least: int, most: int) -> None:
    """Cast, 300 would be 44 to a file that takes bytes, and a share of 1 would be 0."""
    model = perceptron([helper.make_node("MatMul", ["h", "w"], ["out"])], CONSTANTS)
    model.graph.input[0].type.tensor_type.elem_type = getattr(TensorProto, kind)
    model.graph.input[0].name = "own"
    model.graph.node.insert(0, helper.make_node("Cast", ["own"], ["x"], to=TensorProto.FLOAT))
    network = load_onnx(model)
    dtype = torch.float32 if kind == "UINT8" else torch.int64
    inside = torch.tensor([[least, most]], dtype=dtype)
    assert network.suited("classification", (inside,), {}, labels=False) is network
    for odd in ([[least, most + 1]], [[least - 1, most]], [[0.5, 0.0]]):
        with pytest.raises(ValueError, match=rf"in 'own', expected whole numbers from {least} to {most}, as the file"):
            network.suited("classification", (torch.tensor(odd, dtype=torch.float64),), {}, labels=False)
    if kind != "BOOL":
        beyond = torch.tensor([[least - 45, most + 45]], dtype=dtype)
        torch.testing.assert_close(network(beyond), network(inside))


def test_numbers_that_a_file_takes_as_whole_ones_must_be_whole() -> None:
    model = perceptron([helper.make_node("MatMul", ["h", "w"], ["out"])], CONSTANTS)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    model.graph.input[0].name = "own"
    model.graph.node.insert(0, helper.make_node("Cast", ["own"], ["x"], to=TensorProto.FLOAT))
    network = load_onnx(model)
    assert network.suited("classification", (torch.ones(2, 2),), {}, labels=False) is network
    with pytest.raises(ValueError, match=r"inputs: found 0\.5 in 'own', expected whole numbers, as the file takes"):
        network.suited("classification", (torch.tensor([[1.0, 0.5]]),), {}, labels=False)
    # What has another name is refused where the network is run, with the names that it has.
    assert network.suited("classification", (), {"other": torch.tensor([[1.0, 0.5]])}, labels=False) is network


def test_quantised_probabilities_have_no_more_digits_than_their_steps() -> None:
    """What was rounded to 0 is about half a step: its logarithm would outweigh all others."""
    ends: dict[str, Array] = {"step": np.array(1 / 256, np.float32), "zero": np.array(0, np.uint8)}
    nodes = [
        helper.make_node("Mul", ["h", "s"], ["far"]),
        helper.make_node("Gemm", ["far", "w", "b"], ["z"]),
        helper.make_node("Softmax", ["z"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "step", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["out"]),
    ]
    model = perceptron(nodes, CONSTANTS | ends)
    assert (answers(model, x=X)[0] == 0).any()
    found = logits(model)
    assert np.ptp(found, axis=1).max() <= np.log(512) + 1e-3
    assert (found.argmax(1) == answers(model, x=X)[0].argmax(1)).all()


def test_functions_of_the_file_are_taken_apart() -> None:
    linear = helper.make_node("Linear", ["h", "w", "b"], ["out"], domain="own")
    model = perceptron([linear], CONSTANTS)
    whole = [helper.make_node("MatMul", ["a", "c"], ["y"]), helper.make_node("Add", ["y", "d"], ["o"])]
    versions = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "Linear", ["a", "c", "d"], ["o"], whole, versions))
    model.opset_import.append(helper.make_opsetid("own", 1))
    np.testing.assert_allclose(logits(model), answers(model, x=X)[0], rtol=1e-4, atol=1e-5)


def test_columns_that_are_given_as_floats_are_served_as_the_file_takes_them(tmp_path: Path) -> None:
    model = perceptron([helper.make_node("Gemm", ["h", "w", "b"], ["out"])], CONSTANTS)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    model.graph.node[0].input[0] = "plain"
    model.graph.node.insert(0, helper.make_node("Cast", ["x"], ["plain"], to=TensorProto.FLOAT))
    x, y = DRAW.integers(0, 9, (400, 2)).astype(np.float32), DRAW.integers(0, 3, 400)
    out = tmp_path / "bundle"
    fit_bundle(model, (x[:200], y[:200]), out, calibration_loader=(x[200:], y[200:]))
    found = Predictor.load(out).predict(x[:5]).mean
    np.testing.assert_allclose(found, answers(model, x=x[:5].astype(np.int32))[0], rtol=1e-4, atol=1e-5)
