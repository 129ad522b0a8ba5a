"""Metrics against hand computation, on a bundle whose graph is written by hand: no network, no export."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from demur.offline.evaluation.diagnostics import ECE_BINS, equal_mass, expected_calibration_error
from demur.offline.evaluation.evaluate import evaluate
from demur.offline.evaluation.measured import Measured, clopper_pearson
from demur.service.bundle import (
    Calibration,
    CalibrationTensors,
    Graph,
    InputSpec,
    Manifest,
    ParameterSlice,
    Posterior,
    Prior,
    Selection,
    write_bundle,
)
from demur.service.inference.predictor import Predictor
from demur.service.maths.posterior_factor import CholeskyPosterior
from demur.service.maths.rejection import RejectionRule
from tests import reference
from tests.support.bundles import even_outcomes
from tests.support.manifests import described_outcomes

SIZE = 2
SCALE_TRIL = np.array([[0.5, 0.0], [0.2, 0.3]])
SIGMA, TEMPERATURE = 0.6, 1.5


def graph(outputs: int, features: int) -> bytes:
    """mean = inputs[:, :K]; variance[b, k] = (k + 1)^2 |L^T inputs[b, :S]|^2."""
    constants: dict[str, np.ndarray] = {
        "chosen": np.eye(features, outputs, dtype=np.float32),
        "root": np.eye(features, SIZE, dtype=np.float32) @ SCALE_TRIL.astype(np.float32),
        "scale": np.arange(1, outputs + 1, dtype=np.float32).reshape(1, outputs) ** 2,
        "axis": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["inputs", "chosen"], ["mean"]),
        helper.make_node("MatMul", ["inputs", "root"], ["projected"]),
        helper.make_node("Mul", ["projected", "projected"], ["squares"]),
        helper.make_node("ReduceSum", ["squares", "axis"], ["length"], keepdims=1),
        helper.make_node("Mul", ["length", "scale"], ["variance"]),
    ]
    shapes = {"inputs": [features], "mean": [outputs], "variance": [outputs]}
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *s]) for name, s in shapes.items()}
    made = helper.make_graph(
        nodes,
        "g",
        [values["inputs"]],
        [values["mean"], values["variance"]],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def make(folder: Path, task: Any, outputs: int, features: int, scores: np.ndarray) -> Predictor:
    rule = RejectionRule(np.sort(scores), 0.25)
    manifest = Manifest(
        name="by-hand",
        version="1",
        task=task,
        input=InputSpec(shape=(features,)),
        outputs=outputs,
        class_names=None,
        parameter_count=5,
        subnetwork_size=SIZE,
        selection=Selection("random", {}, 0, None, (ParameterSlice("weight", (5,), 0, SIZE),)),
        prior=Prior("fixed", 1.0, 1.0),
        posterior=Posterior("cholesky", SIZE, 0.0),
        sigma_noise=SIGMA if task == "regression" else None,
        temperature=TEMPERATURE if task == "classification" else 1.0,
        map_temperature=TEMPERATURE if task == "classification" else 1.0,
        link="gaussian" if task == "regression" else "probit",
        opset=17,
        graph=Graph(outputs * 2 * SIZE),
        calibration=Calibration(
            "epistemic_std" if task == "regression" else "predictive_entropy",
            len(scores),
            0.25,
            rule.threshold,
            described_outcomes(task == "regression"),
        ),
        verification=None,
    )
    path = write_bundle(
        folder / "bundle",
        manifest,
        model=graph(outputs, features),
        posterior=CholeskyPosterior(SCALE_TRIL),
        subnetwork_indices=np.arange(SIZE),
        calibration=CalibrationTensors(rule.scores, even_outcomes(rule.scores, outputs, task == "regression")),
    )
    return Predictor.load(path, threads=1)


def variance(x: np.ndarray, outputs: int) -> np.ndarray:
    covariance = SCALE_TRIL @ SCALE_TRIL.T
    return np.array([(k + 1) ** 2 * float(x[:SIZE] @ covariance @ x[:SIZE]) for k in range(outputs)])


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def batches(inputs: np.ndarray, targets: np.ndarray) -> list[tuple[torch.Tensor, torch.Tensor]]:
    x, y = torch.as_tensor(inputs), torch.as_tensor(targets)
    return list(zip(x.split(7), y.split(7), strict=True))


def values(figures: dict[str, Measured]) -> dict[str, float]:
    return {name: figure.value for name, figure in figures.items()}


def by_hand(group: list[np.ndarray], y: np.ndarray, inside: list[float], outside: list[float]) -> dict[str, float]:
    """The figures that the Laplace approximation and the plain network share."""
    wrong = [int(np.argmax(p)) != c for p, c in zip(group, y, strict=True)]
    threshold = sorted(inside)[math.ceil(0.95 * len(inside)) - 1]
    return {
        "accuracy": 1 - sum(wrong) / len(y),
        "log_likelihood": sum(math.log(p[c]) for p, c in zip(group, y, strict=True)) / len(y),
        "brier": sum(sum((p[k] - (k == c)) ** 2 for k in range(3)) for p, c in zip(group, y, strict=True)) / len(y),
        "ece": slow_ece(np.array(group), y),
        "adaptive_ece": equal_mass(np.array([max(p) for p in group]), ~np.array(wrong)).ece,
        "aurc": reference.aurc(inside, wrong),
        "augrc": reference.augrc(inside, wrong),
        "ood_auroc": auroc(inside, outside),
        "ood_fpr_95": sum(score <= threshold for score in outside) / len(outside),
    }


def auroc(inside: list[float], outside: list[float]) -> float:
    """How often a foreign score is above one of the test data, ties half."""
    wins = [1.0 if o > i else 0.5 if o == i else 0.0 for o in outside for i in inside]
    return sum(wins) / len(wins)


def test_classification_by_hand(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    test, foreign = 2 * rng.normal(size=(20, 3)), 6 * rng.normal(size=(9, 3))
    y = rng.integers(0, 3, 20)
    adjusted, plain, other = (
        [softmax(x / reference.probit_divisor(variance(x, 3), TEMPERATURE)) for x in test],
        [softmax(x / TEMPERATURE) for x in test],
        [softmax(x / reference.probit_divisor(variance(x, 3), TEMPERATURE)) for x in foreign],
    )
    inside, outside = ([float(-(p * np.log(p)).sum()) for p in group] for group in (adjusted, other))
    limit = sorted(inside)[12]
    predictor = make(tmp_path, "classification", 3, 3, np.array([limit - 0.3, limit - 0.2, limit, limit + 1e-3]))
    threshold = predictor.decision.pooled.threshold
    found = evaluate(predictor, batches(test, y), batches(foreign, np.zeros(9)))
    accepted = [int(np.argmax(p)) == c for p, c, s in zip(adjusted, y, inside, strict=True) if s <= threshold]
    expected = {
        "false_reject_rate": sum(score > threshold for score in inside) / 20,
        "accepted_accuracy": sum(accepted) / len(accepted),
        "ood_reject_rate": sum(score > threshold for score in outside) / 9,
    }
    plain_in, plain_out = (
        [float(-(p * np.log(p)).sum()) for p in group] for group in (plain, [softmax(x / TEMPERATURE) for x in foreign])
    )
    laplace = by_hand(adjusted, y, inside, outside) | expected
    ours = {name: value for name, value in values(found.laplace).items() if not name.startswith("set_")}
    assert ours == pytest.approx(laplace, rel=1e-5)
    assert values(found.plain) == pytest.approx(by_hand(plain, y, plain_in, plain_out), rel=1e-5)
    assert 0 < expected["false_reject_rate"] < 1
    assert (found.examples, found.foreign_examples) == (20, 9)
    assert found.laplace["accepted_accuracy"].interval == clopper_pearson(sum(accepted), len(accepted))


@pytest.mark.parametrize("outputs", [1, 2])
def test_regression_by_hand(tmp_path: Path, outputs: int) -> None:
    rng = np.random.default_rng(1)
    test, foreign = rng.normal(size=(150, 2)), 5 * rng.normal(size=(8, 2))
    y = test[:, :outputs] + rng.normal(size=(150, outputs))
    inside, outside = ([math.sqrt(variance(x, outputs).mean()) for x in group] for group in (test, foreign))
    predictor = make(tmp_path, "regression", outputs, 2, np.array([0.1, 0.3, 0.5, 0.7]))
    targets = y[:, 0] if outputs == 1 else y
    found = evaluate(predictor, batches(test, targets), batches(foreign, np.zeros(8)))
    log_likelihoods, squares, z = [], [], []
    for n, x in enumerate(test):
        total = variance(x, outputs) + SIGMA**2
        squares += [(y[n, k] - x[k]) ** 2 for k in range(outputs)]
        z += [abs(y[n, k] - x[k]) / math.sqrt(total[k]) for k in range(outputs)]
        log_likelihoods.append(
            sum(-0.5 * (math.log(2 * math.pi * v) + (y[n, k] - x[k]) ** 2 / v) for k, v in enumerate(total))
        )
    expected = {
        "rmse": math.sqrt(sum(squares) / len(squares)),
        "log_likelihood": sum(log_likelihoods) / 150,
        "coverage_90": sum(value <= 1.644854 for value in z) / len(z),
        "coverage_95": sum(value <= 1.959964 for value in z) / len(z),
        "coverage_99": sum(value <= 2.575829 for value in z) / len(z),
        "false_reject_rate": sum(score > predictor.decision.pooled.threshold for score in inside) / 150,
        "ood_reject_rate": sum(score > predictor.decision.pooled.threshold for score in outside) / 8,
        "ood_auroc": auroc(inside, outside),
        "ood_fpr_95": sum(score <= sorted(inside)[142] for score in outside) / 8,  # 143 of 150 are 95 % or more
    }
    assert values(found.laplace) == pytest.approx(expected, rel=1e-5)
    plain = np.abs(y - test[:, :outputs]) / SIGMA
    assert found.plain["coverage_95"].value == pytest.approx((plain <= 1.959964).mean())
    assert found.plain["rmse"] == found.laplace["rmse"]
    assert found.plain.keys() == {"rmse", "log_likelihood", "coverage_90", "coverage_95", "coverage_99"}
    assert [*found.by_output] == ["0", "1"] * (outputs == 2)
    for k, (laplace, alone) in enumerate(found.by_output.values()):
        assert laplace["rmse"].value == pytest.approx(math.sqrt(np.mean(squares[k::2])))
        assert laplace["coverage_95"].value == pytest.approx(np.mean([value <= 1.959964 for value in z[k::2]]))
        assert alone["coverage_95"].value == pytest.approx((plain[:, k] <= 1.959964).mean())
    if found.by_output:
        each = [laplace["log_likelihood"].value for laplace, _ in found.by_output.values()]
        assert sum(each) == pytest.approx(found.laplace["log_likelihood"].value)


def test_without_foreign_data_nothing_is_said_about_them(tmp_path: Path) -> None:
    predictor = make(tmp_path, "regression", 1, 2, np.array([0.1, 0.3, 0.5]))
    found = evaluate(predictor, batches(np.ones((3, 2)), np.ones(3)))
    assert not [name for name in (*found.laplace, *found.plain) if name.startswith("ood")]
    assert found.foreign_examples == 0


def test_bad_test_data_are_refused(tmp_path: Path) -> None:
    predictor = make(tmp_path, "classification", 3, 3, np.array([0.1, 0.3, 0.5]))
    with pytest.raises(ValueError, match="test_data: found no example"):
        evaluate(predictor, [])
    with pytest.raises(ValueError, match="from 3 to 3, expected 0 to 2"):
        evaluate(predictor, batches(np.ones((2, 3)), np.array([3, 3])))
    with pytest.raises(ValueError, match="test_data: found inputs of shape"):
        evaluate(predictor, batches(np.ones((2, 4)), np.array([0, 1])))
    with pytest.raises(ValueError, match="foreign_data: found no example"):
        evaluate(predictor, batches(np.ones((2, 3)), np.array([0, 1])), [])


# --------------------------------------------------------------------------- expected calibration error


def slow_ece(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Fifteen bins of equal width, bin by bin."""
    total = 0.0
    for b in range(ECE_BINS):
        inside = [
            n
            for n, p in enumerate(probabilities)
            if b / ECE_BINS <= max(p) < (b + 1) / ECE_BINS or (b == ECE_BINS - 1 and max(p) == 1)
        ]
        if inside:
            accuracy = sum(int(np.argmax(probabilities[n])) == y[n] for n in inside) / len(inside)
            confidence = sum(max(probabilities[n]) for n in inside) / len(inside)
            total += len(inside) / len(probabilities) * abs(accuracy - confidence)
    return total


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 40), st.integers(2, 5), st.floats(0.1, 20), st.integers(0, 999))
def test_ece_equals_a_slow_loop(examples: int, classes: int, sharpness: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities = np.stack([softmax(sharpness * row) for row in rng.normal(size=(examples, classes))])
    y = rng.integers(0, classes, examples)
    assert expected_calibration_error(probabilities, y) == pytest.approx(slow_ece(probabilities, y), abs=1e-12)


def test_ece_by_hand() -> None:
    """Two at confidence 0.9, one right; one at 0.6, right: 2/3 |0.5 - 0.9| + 1/3 |1 - 0.6|."""
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]])
    assert expected_calibration_error(p, np.array([0, 1, 0])) == pytest.approx(0.4)
    assert expected_calibration_error(np.eye(2), np.array([0, 1])) == 0
    assert expected_calibration_error(np.eye(2), np.array([1, 0])) == 1
