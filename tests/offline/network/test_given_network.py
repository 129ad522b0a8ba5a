"""Networks that are no modules of torch: ONNX files and perceptrons of scikit-learn, and what is refused."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from torch import nn

from demur.offline.network.given_network import network_of
from demur.offline.network.onnx_network import OnnxNetwork, load_onnx
from demur.offline.network.unsupported import UnsupportedModelError
from demur.service.inference.onnx_runtime import onnxruntime
from tests.support.onnx_files import perceptron

Array = np.ndarray
DRAW = np.random.default_rng(0)
W, BIAS = DRAW.normal(size=(5, 3)).astype(np.float32), DRAW.normal(size=3).astype(np.float32)
CONSTANTS = {"w": W, "wt": np.ascontiguousarray(W.T), "b": BIAS, "b2": BIAS[None]}
# The nodes behind the features h (B, 5).
ENDS: dict[str, tuple[list[onnx.NodeProto], Callable[[Array], Array]]] = {
    "gemm": ([helper.make_node("Gemm", ["h", "w", "b"], ["out"])], lambda h: h @ W + BIAS),
    "transposed": ([helper.make_node("Gemm", ["h", "wt", "b"], ["out"], transB=1)], lambda h: h @ W + BIAS),
    "scaled": (
        [helper.make_node("Gemm", ["h", "w", "b2"], ["out"], alpha=2.0, beta=0.5)],
        lambda h: 2 * h @ W + BIAS / 2,
    ),
    "without a bias": ([helper.make_node("Gemm", ["h", "w"], ["out"])], lambda h: h @ W),
    "product": ([helper.make_node("MatMul", ["h", "w"], ["out"])], lambda h: h @ W),
    "product and sum": (
        [helper.make_node("MatMul", ["h", "w"], ["p"]), helper.make_node("Add", ["b", "p"], ["out"])],
        lambda h: h @ W + BIAS,
    ),
    "transposed by a node": (
        [helper.make_node("Transpose", ["wt"], ["v"]), helper.make_node("MatMul", ["h", "v"], ["out"])],
        lambda h: h @ W,
    ),
    "softmax": (
        [helper.make_node("Gemm", ["h", "w", "b"], ["z"]), helper.make_node("Softmax", ["z"], ["out"], axis=-1)],
        lambda h: h @ W + BIAS,
    ),
    "sigmoid and identity": (
        [
            helper.make_node("Gemm", ["h", "w", "b"], ["z"]),
            helper.make_node("Identity", ["z"], ["y"]),
            helper.make_node("Sigmoid", ["y"], ["out"]),
        ],
        lambda h: h @ W + BIAS,
    ),
}


@pytest.mark.parametrize("opset", [11, 17, 21])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_an_onnx_network_is_its_linear_layer(end: str, opset: int) -> None:
    nodes, logits = ENDS[end]
    model = perceptron(nodes, CONSTANTS, opset=opset)
    network = load_onnx(model)
    x = DRAW.normal(size=(4, 2)).astype(np.float32)
    h = network.body(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(h, np.maximum(x @ numpy_helper.to_array(model.graph.initializer[0]), 0), rtol=1e-5)
    np.testing.assert_allclose(network(torch.from_numpy(x)).detach().numpy(), logits(h), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_file_written_by_torch_gives_what_onnxruntime_gives(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4)).eval()
    path, x = tmp_path / "net.onnx", torch.randn(3, 1, 6, 6)
    torch.onnx.export(model, (x,), path, dynamo=True, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), verbose=False)
    network = network_of(path)
    assert isinstance(network, OnnxNetwork)
    (expected,) = onnxruntime.InferenceSession(path).run(None, {onnx.load(path).graph.input[0].name: x.numpy()})
    np.testing.assert_allclose(network(x).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(network_of(str(path))(x).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_fixed_number_of_examples_is_none() -> None:
    network = load_onnx(perceptron(ENDS["gemm"][0], CONSTANTS, batch=1))
    assert network(torch.randn(7, 2)).shape == (7, 3)


def test_several_inputs_are_taken_in_order_or_by_name() -> None:
    network = load_onnx(perceptron(ENDS["gemm"][0], CONSTANTS, second="tokens"))
    x, tokens = torch.randn(3, 2), torch.tensor([[1], [0], [4]])
    torch.testing.assert_close(network(x, tokens), network(tokens=tokens, x=x))
    assert not torch.equal(network(x, tokens), network(x, 0 * tokens))


def test_a_copy_is_the_same_network() -> None:
    network = load_onnx(perceptron(ENDS["gemm"][0], CONSTANTS))
    x = torch.randn(3, 2)
    torch.testing.assert_close(copy.deepcopy(network).double()(x.double()).float(), network(x))
    torch.testing.assert_close(copy.deepcopy(network)(x), network(x))


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"none")
    with pytest.raises(UnsupportedModelError, match="expected a readable ONNX file"):
        network_of(tmp_path / "net.onnx")
    with pytest.raises(UnsupportedModelError, match="no such file"):
        network_of(tmp_path / "other.onnx")


X = DRAW.normal(size=(120, 4)) * [1, 10, 0.1, 5] + [0, 3, -1, 100]
CLASSES = (X[:, 0] > 0).astype(int) + (X[:, 1] > 3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
@pytest.mark.parametrize(
    "scaler",
    [
        None,
        StandardScaler(),
        StandardScaler(with_mean=False),
        StandardScaler(with_std=False),
        MinMaxScaler((-1, 2)),
        MaxAbsScaler(),
        RobustScaler(),
        RobustScaler(with_centering=False),
    ],
    ids=str,
)
def test_a_perceptron_of_scikit_learn_gives_its_own_probabilities(activation: str, scaler: Any) -> None:
    classifier = MLPClassifier((8, 5), activation=activation, max_iter=30, random_state=0)
    model = (make_pipeline(scaler, classifier) if scaler else classifier).fit(X, CLASSES)
    found = torch.softmax(network_of(model)(torch.as_tensor(X).float()), dim=1).detach().numpy()
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-4)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_two_classes_have_one_logit_and_values_are_means() -> None:
    x = torch.as_tensor(X).float()
    binary = MLPClassifier((6,), max_iter=20, random_state=0).fit(X, X[:, 0] > 0)
    probability = torch.sigmoid(network_of(binary)(x)).detach().numpy()
    np.testing.assert_allclose(probability[:, 0], binary.predict_proba(X)[:, 1], atol=1e-4)
    regression = MLPRegressor(hidden_layer_sizes=(6,), max_iter=20, random_state=0).fit(X, X[:, :2])
    np.testing.assert_allclose(network_of(regression)(x).detach().numpy(), regression.predict(X), rtol=1e-3, atol=1e-3)


class FromElsewhere:
    """Of a package that is not installed here."""


FromElsewhere.__module__ = "xgboost.sklearn"


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (RandomForestClassifier(), r"RandomForestClassifier.*taken as ONNX: skl2onnx\.to_onnx"),
        (FromElsewhere(), "FromElsewhere.*convert_xgboost"),
        (LogisticRegression(), "found LogisticRegression, expected .*alone or in a Pipeline.*skl2onnx"),
        (make_pipeline(StandardScaler(), RandomForestClassifier()), "RandomForestClassifier in a Pipeline.*skl2onnx"),
        ({"epoch": 3, "model": nn.Linear(2, 2).state_dict()}, r"load_state_dict\(checkpoint\['model'\]\)"),
        ("net.h5", r"network\.export\(path, format='onnx'\)"),
        ("net.joblib", r"joblib\.load"),
        (nn.Linear(2, 2).state_dict(), "load_state_dict"),
        (nn.Linear, "the class Linear.*give an instance"),
        (None, "found NoneType"),
        ("weights.pt", "weights_only=True"),
    ],
)
def test_what_holds_no_network_is_refused_with_what_to_do(model: object, named: str) -> None:
    with pytest.raises(TypeError, match=named):
        network_of(model)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (MLPClassifier(), "not trained"),
        (make_pipeline(Normalizer(), MLPClassifier()), "not trained"),
        (make_pipeline(StandardScaler(), MLPClassifier()), "not trained"),
    ],
)
def test_what_is_not_trained_is_refused(model: object, named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=named):
        network_of(model)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_another_link_is_refused() -> None:
    counts = MLPRegressor(loss="poisson", hidden_layer_sizes=(3,), max_iter=5).fit(X, CLASSES)
    with pytest.raises(UnsupportedModelError, match="exp"):
        network_of(counts)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("step", [Normalizer(), MinMaxScaler(clip=True)])
def test_other_steps_are_refused(step: Any) -> None:
    model = make_pipeline(step, MLPClassifier((3,), max_iter=5)).fit(X, CLASSES)
    with pytest.raises(UnsupportedModelError, match="transform the data first"):
        network_of(model)
