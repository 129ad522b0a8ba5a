"""A network in ONNX and examples in files, on the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.offline.network.onnx_network import load_onnx
from demur.offline.recipes.from_files import class_names_in, numbered, read_examples, recipe_of_files
from demur.offline.recipes.load import RecipeError
from demur.service.bundle import read_manifest
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.inference.predictor import Predictor
from tests.support.onnx_files import perceptron, trees

DRAW = np.random.default_rng(0)
NODES = [helper.make_node("Gemm", ["h", "w", "b"], ["z"]), helper.make_node("Softmax", ["z"], ["out"], axis=-1)]
CONSTANTS = {"w": DRAW.normal(size=(5, 3)).astype(np.float32), "b": np.zeros(3, np.float32)}


def arrays(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as found:
        return dict(found)


def run_demur(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def fit(files: Path, network: onnx.ModelProto, *options: str) -> Result:
    """`demur fit` of a network in ONNX, with the folder's examples, to the folder's bundle."""
    onnx.save(network, files / "net.onnx")
    data = "--data", files / "train.npz", "--held-out", files / "held_out.npz"
    done = run_demur("fit", files / "net.onnx", *data, "--out", files / "bundle", *options)
    assert done.exit_code == 0, done.stderr
    return done


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a network, and examples whose classes it tells."""
    network = perceptron(NODES, CONSTANTS)
    onnx.save(network, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(network.SerializeToString())
    for name, count in (("train", 300), ("held_out", 200)):
        x = DRAW.normal(size=(count, 2)).astype(np.float32)
        probabilities = session.run(None, {"x": x})[0]
        y = [DRAW.choice(3, p=p / p.sum()) for p in probabilities.astype(np.float64)]
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.array(y))
    return tmp_path


def test_a_network_in_onnx_is_fitted_and_served(files: Path) -> None:
    fit(files, perceptron(NODES, CONSTANTS), "--name", "net")
    predictor = Predictor.load(files / "bundle")
    x = arrays(files / "held_out.npz")["x"]
    found = predictor.predict(x)
    (probabilities,) = onnxruntime.InferenceSession(files / "net.onnx").run(None, {"x": x})
    assert found.probabilities is not None
    assert (found.probabilities.argmax(1) == probabilities.argmax(1)).all()
    assert found.rejected.mean() < 0.15
    assert predictor.predict(1000 * x[:20]).rejected.all()
    operators = [node.op_type for node in onnx.load(files / "bundle" / "model.onnx").graph.node]
    assert operators.count("Relu") == 1  # the file's own nodes, once


def test_targets_may_be_names_and_a_file_is_evaluated(files: Path) -> None:
    for name in ("train", "held_out"):
        found = arrays(files / f"{name}.npz")
        np.savez(files / f"{name}.npz", x=found["x"], y=np.array(["low", "middle", "top"])[found["y"]])
    fit(files, perceptron(NODES, CONSTANTS))
    assert Predictor.load(files / "bundle").manifest.class_names == ("low", "middle", "top")
    done = run_demur("evaluate", files / "bundle", files / "held_out.npz")
    assert done.exit_code == 0, done.stderr
    assert "200 test examples" in done.output
    found = arrays(files / "held_out.npz")
    np.savez(files / "other.npz", x=found["x"], y=np.array(["low", "high"] * 100))
    refused = run_demur("evaluate", files / "bundle", files / "other.npz")
    assert refused.exit_code != 0
    assert "y: found 'high', expected one of low, middle, top" in " ".join(refused.stderr.split())


@pytest.mark.usefixtures("without_export")
def test_labels_that_are_other_numbers_are_given_as_text(files: Path) -> None:
    model = trees(DRAW.normal(size=(40, 2)).astype(np.float32), [0.0, 0.0])
    for attribute in model.graph.node[-1].attribute:
        if attribute.name == "classlabels_int64s":
            attribute.ints[:] = [7, 9]
    for name in ("train", "held_out"):
        x = DRAW.normal(size=(200, 2)).astype(np.float32)
        np.savez(files / f"{name}.npz", x=x, y=np.where((x > 0).sum(axis=1) == 1, 9, 7))
    onnx.save(model, files / "net.onnx")
    refused = run_demur("check", files / "net.onnx", "--data", files / "train.npz")
    assert "y: found the number 9 where names of classes are numbers, expected the names as text" in refused.stderr
    for name in ("train", "held_out"):
        found = arrays(files / f"{name}.npz")
        np.savez(files / f"{name}.npz", x=found["x"], y=found["y"].astype(str))
    fit(files, model)
    assert read_manifest(files / "bundle")[0].class_names == ("7", "9")


@pytest.mark.parametrize(
    ("targets", "names", "expected"),
    [
        (np.array([1, 0]), ["0", "1"], [1, 0]),
        (np.array([1, 0]), ["no", "yes"], [1, 0]),
        (np.array([[1.0], [0.0]]), ["1", "2"], [[1.0], [0.0]]),
        (np.array([["yes"], ["no"]]), ["no", "yes"], [1, 0]),
        (np.array(["2", "1"]), ["1", "2", "3"], [1, 0]),
    ],
)
def test_targets_as_places_of_names(targets: Any, names: list[str], expected: list[Any]) -> None:
    assert numbered(targets, names, Path("x.npz")).tolist() == expected


@pytest.mark.parametrize("present", [[1, 2], [1, 2, 3]])
def test_numbers_may_be_no_places_where_names_are_numbers(present: list[int]) -> None:
    with pytest.raises(RecipeError, match="where names of classes are numbers, expected the names as text"):
        numbered(np.array(present), ["1", "2", "3"], Path("x.npz"))


def of_kind(kind: str, folder: Path) -> tuple[onnx.ModelProto, Any]:
    """A network whose inputs have this type, and the folder's examples of it, those held out also returned."""
    dtype = np.dtype(kind)
    own = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(dtype), ["n", 2])
    outputs = [helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, ["n", 3])]
    nodes = [helper.make_node("Cast", ["x"], ["c"], to=1), helper.make_node("MatMul", ["c", "w"], ["out"])]
    weight = numpy_helper.from_array(DRAW.normal(size=(2, 3)).astype(np.float32) / 20, "w")
    model = helper.make_model(helper.make_graph(nodes, "own", [own], outputs, [weight]), ir_version=8)
    model.opset_import[0].version = 17
    for name in ("train", "held_out"):
        x = DRAW.integers(0, 2 if kind == "bool" else 100, (200, 2)).astype(dtype)
        np.savez(folder / f"{name}.npz", x=x, y=DRAW.integers(0, 3, 200))
    return model, x


@pytest.mark.parametrize("kind", ["uint8", "int8", "bool", "int32", "float16", "float64"])
def test_inputs_of_any_type_are_given_as_the_file_declares_them(tmp_path: Path, kind: str) -> None:
    model, x = of_kind(kind, tmp_path)
    network = load_onnx(model)
    given, _ = read_examples(tmp_path / "held_out.npz", network)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    tensor = torch.from_numpy(given)
    with torch.no_grad():
        found = network(tensor.float() if tensor.is_floating_point() else tensor).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_bytes_are_fitted_and_served(files: Path) -> None:
    model, x = of_kind("uint8", files)
    fit(files, model)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(Predictor.load(files / "bundle").predict(x).mean, expected, rtol=1e-4, atol=1e-5)


def test_a_check_refuses_what_a_fit_refuses(files: Path) -> None:
    mixed = [helper.make_node("Gemm", ["h", "w", "b"], ["z"]), helper.make_node("Softmax", ["z"], ["out"], axis=0)]
    onnx.save(perceptron(mixed, CONSTANTS), files / "mixed.onnx")
    for options in ([], ["--data", str(files / "train.npz")]):
        refused = run_demur("check", files / "mixed.onnx", *options)
        assert refused.exit_code == 2
        assert "an example's outputs depend on the other examples" in " ".join(refused.stderr.split())
    assert run_demur("check", files / "net.onnx", "--within", "nowhere").exit_code == 2


def test_a_file_that_is_no_recipe_is_told(files: Path) -> None:
    done = run_demur("fit", files / "train.npz", "--out", files / "bundle")
    assert done.exit_code == 2
    assert "found a file that is no text, expected a recipe" in " ".join(done.stderr.split())


def test_operators_of_onnxruntime_stay(files: Path) -> None:
    fit(files, perceptron(NODES, CONSTANTS, activation="Gelu"))
    operators = {(node.domain, node.op_type) for node in onnx.load(files / "bundle" / "model.onnx").graph.node}
    assert ("com.microsoft", "Gelu") in operators


def test_a_linear_network_has_nothing_before_its_layer(files: Path) -> None:
    weight = DRAW.normal(size=(2, 3)).astype(np.float32)
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])]
    outputs = [helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, ["n", 3])]
    node, constant = helper.make_node("MatMul", ["x", "w"], ["out"]), numpy_helper.from_array(weight, "w")
    fit(files, helper.make_model(helper.make_graph([node], "linear", inputs, outputs, [constant])))
    x = arrays(files / "held_out.npz")["x"]
    np.testing.assert_allclose(Predictor.load(files / "bundle").predict(x).mean, x @ weight, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("without_export")
def test_several_inputs_have_their_names(files: Path) -> None:
    for name in ("train", "held_out"):
        with np.load(files / f"{name}.npz") as file:
            tokens = DRAW.integers(0, 5, (len(file["y"]), 1))
            np.savez(files / f"{name}.npz", x=file["x"], tokens=tokens, y=file["y"])
    fit(files, perceptron(NODES, CONSTANTS, second="tokens"))
    assert [part.name for part in read_manifest(files / "bundle")[0].input.parts or ()] == ["tokens", "x"]


def test_a_check_says_what_a_fit_takes_and_a_fit_begins_with_the_same(files: Path) -> None:
    model = perceptron(NODES, CONSTANTS)
    onnx.save(model, files / "net.onnx")
    before = set(files.iterdir())
    alone, with_data = (
        run_demur("check", files / "net.onnx", *options).stdout.splitlines()
        for options in ((), ("--data", files / "held_out.npz"))
    )
    assert set(files.iterdir()) == before
    assert alone[0] == "inputs: x (batch, 2) float32; any number of examples"
    assert alone[1].startswith("output: 'out', 3 for each example")
    assert "tried with random numbers" in alone[-1]
    assert with_data[:3] == alone[:3]
    assert any("D = 18" in line for line in with_data)
    assert any("GiB" in line for line in with_data)
    said = fit(files, model).output.splitlines()
    assert [line for line in said if line in with_data][:3] == alone[:3]


def test_the_labels_of_the_file_name_the_classes(files: Path) -> None:
    model = trees(DRAW.normal(size=(40, 2)).astype(np.float32), [0.0, 0.0])
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    for attribute in model.graph.node[-1].attribute:
        if attribute.name == "classlabels_int64s":
            attribute.CopyFrom(helper.make_attribute("classlabels_strings", ["yes", "no"]))
    for name in ("train", "held_out"):
        x = DRAW.normal(size=(200, 2)).astype(np.float32)
        np.savez(files / f"{name}.npz", x=x, y=np.where((x > 0).sum(axis=1) == 1, "no", "yes"))
    fit(files, model)
    predictor = Predictor.load(files / "bundle")
    assert predictor.manifest.class_names == ("yes", "no")
    probabilities = predictor.predict(x).probabilities
    assert probabilities is not None
    told = np.where(probabilities.argmax(axis=1) == 0, "yes", "no")
    assert (told == arrays(files / "held_out.npz")["y"]).all()


def test_other_files_are_refused(files: Path) -> None:
    train = files / "train.npz"
    (files / "text.npz").write_text("x")
    np.savez(files / "alone.npz", x=np.zeros((3, 2)))
    np.savez(files / "objects.npz", x=np.array([{}], dtype=object), y=np.zeros(1))
    np.save(files / "one.npy", np.zeros(3))
    for held_out, named in (
        (None, "--held-out"),
        (files / "none.npz", "no such file"),
        (files / "text.npz", "numpy.savez"),
        (files / "alone.npz", "found the arrays x"),
        (files / "objects.npz", "numpy.savez"),
        (files / "one.npy", "numpy.savez"),
    ):
        with pytest.raises(RecipeError, match=named):
            recipe_of_files(files / "net.onnx", train, held_out)
    with pytest.raises(RecipeError, match="--data"):
        recipe_of_files(files / "net.onnx", None, train)


def test_data_beside_a_recipe_are_refused(files: Path) -> None:
    (files / "recipe.py").write_text("")
    done = run_demur("fit", files / "recipe.py", "--data", files / "train.npz", "--out", files / "bundle")
    assert done.exit_code == 2
    assert "which has its own data" in done.stderr


def test_names_of_classes_in_a_column_are_those_in_a_row() -> None:
    model = load_onnx(perceptron(NODES, CONSTANTS))
    assert class_names_in(np.array([["low"], ["high"], ["low"]]), model) == ["high", "low"]
