"""offline/export/verify.py: what is served is compared with the truth, and nothing far from it passes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

import demur.offline.publish.exporter
from demur.offline.config import FitConfig
from demur.offline.export.verify import (
    ADDED_SHARE,
    LOOSEST,
    ROUNDING_FACTOR,
    TOLERANCE,
    Truth,
    VerificationError,
    verify,
)
from demur.offline.fit import fit_bundle
from demur.service.bundle import Verification
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.onnx_files import perceptron

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own deprecations are not ours to mend
ROUNDING = {"mean": 0.0, "variance": 0.0}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    synthetic = write_linear(tmp_path_factory.mktemp("verify") / "bundle", outputs=3, spec=FEATURE_SPEC)
    inputs = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    truth = Truth(inputs, synthetic.mean(inputs), synthetic.variance(inputs))
    return synthetic.path, truth


def never() -> dict[str, float]:
    raise AssertionError("asked for without need")


def test_what_agrees_passes_and_its_errors_are_told(case: tuple[Path, Truth]) -> None:
    verification = verify(*case, never)
    assert (verification.examples, verification.tolerance) == (6, TOLERANCE)
    assert set(verification.errors) == {"mean", "variance"}
    assert max(verification.errors.values()) < 1e-5


@pytest.mark.parametrize("name", ["mean", "variance"])
def test_what_differs_is_refused_by_name(case: tuple[Path, Truth], name: str) -> None:
    folder, truth = case
    changed = replace(truth, **{name: getattr(truth, name) * 1.001})
    with pytest.raises(VerificationError, match=rf"the {name} served differs .* by 1\.0e-03 .* at most 1e-04"):
        verify(folder, changed)


def test_no_nearer_than_torch_in_single_precision_is_asked_for(case: tuple[Path, Truth]) -> None:
    folder, truth = case
    changed = replace(truth, variance=truth.variance * 1.001)
    near = {**ROUNDING, "variance": 1.2e-3 / ROUNDING_FACTOR}
    assert verify(folder, changed, lambda: near).tolerance == pytest.approx(1.2e-3)
    with pytest.raises(VerificationError, match="variance"):
        verify(folder, changed, lambda: {**ROUNDING, "mean": 1.0})
    with pytest.raises(VerificationError, match="variance"):
        verify(folder, changed, lambda: {**ROUNDING, "variance": 0.5e-3 / ROUNDING_FACTOR})


def test_there_is_an_end_to_it(case: tuple[Path, Truth]) -> None:
    folder, truth = case
    changed = replace(truth, variance=truth.variance * (1 + 2 * LOOSEST))
    with pytest.raises(VerificationError, match="at most 1e-02"):
        verify(folder, changed, lambda: {**ROUNDING, "variance": 1.0})
    with pytest.raises(VerificationError):
        verify(folder, replace(truth, mean=truth.mean * np.nan), lambda: {**ROUNDING, "mean": np.inf})


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_what_single_precision_does_not_hold_is_said(tmp_path: Path) -> None:
    synthetic = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC)
    inputs = np.ones((6, 4), np.float32)
    inputs[[1, 4]] = 3e38
    truth = Truth(inputs, synthetic.mean(inputs), synthetic.variance(inputs))
    assert np.isfinite(truth.mean).all()
    with pytest.raises(VerificationError, match=r"the mean served is NaN or infinite for 2 of 6 examples, .*3e\+38"):
        verify(synthetic.path, truth)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """What fits hand to `verify` as rounding."""
    found: list[dict[str, float]] = []

    def asking(folder: Path, truth: Truth, rounding: Callable[[], dict[str, float]]) -> Verification:
        found.append(rounding())
        return verify(folder, truth, rounding)

    monkeypatch.setattr(demur.offline.publish.exporter, "verify", asking)
    return found


def test_what_a_file_rounds_is_seen_by_its_inputs(tmp_path: Path, asked: list[dict[str, float]]) -> None:
    """Only its last layer is torch's, whose weights show nothing of a steep function before them."""
    draw = np.random.default_rng(0)
    constants = {"w": draw.normal(size=(5, 3)).astype(np.float32), "steep": np.array(300.0, np.float32)}
    nodes = [
        helper.make_node("Mul", ["h", "steep"], ["u"]),
        helper.make_node("Sin", ["u"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["out"]),
    ]
    data = (draw.normal(size=(60, 2)).astype(np.float32), draw.integers(0, 3, 60))
    config = FitConfig(prior_precision=1.0, false_reject_rate=0.2)
    fit_bundle(perceptron(nodes, constants), data, tmp_path / "b", calibration_loader=data, config=config)
    assert asked[0]["mean"] > 1e-4


def test_rounding_is_measured_on_the_network_itself(tmp_path: Path, asked: list[dict[str, float]]) -> None:
    """About float32's precision, for every quantity."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    loader = [(torch.randn(30, 4), torch.randint(0, 3, (30,))) for _ in range(2)]
    config = FitConfig(subnetwork_size=10, selection="random", prior_precision=1.0)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    fit_bundle(net, loader, tmp_path / "b", calibration_loader=2 * loader, config=config)
    (found,) = asked
    assert set(found) == {*ROUNDING, "added_variance", "feature_scores"}
    assert 1e-8 < found["mean"] < 1e-5, found
    # Relative to the prior variance: at examples that the fit has seen, float32 leaves few digits of the rest.
    assert all(1e-8 < found[name] * ADDED_SHARE < 1e-5 for name in set(found) - {"mean"}), found
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_values_in_small_units_are_compared_in_their_own() -> None:
    """One in kilometres and one in millimetres: the variance of the latter is a 10^12 th, and as wrong."""
    unit, n = np.array([1e3, 1e-3]), 5
    truth = Truth(np.zeros((n, 4), np.float32), np.ones((n, 2)) * unit, np.ones((n, 2)) * unit**2, unit=unit)
    for name, values in (("mean", truth.mean), ("variance", truth.variance)):
        assert truth.errors({name: values * [1.0, 1.01]})[name] == pytest.approx(0.01)
        assert replace(truth, unit=np.ones(1)).errors({name: values * [1.0, 1.01]})[name] < 1e-5


def test_distances_near_the_training_data_are_held_to_their_prior_variance() -> None:
    """They are differences of numbers near 1, whatever the largest of them in the batch."""
    near = np.array([[1e-3], [2e-3]])
    truth = Truth(np.zeros((2, 4), np.float32), np.zeros((2, 3)), np.ones((2, 3)), feature_scores=near)
    assert truth.errors({"feature_scores": near + 1.5e-6})["feature_scores"] == pytest.approx(1.5e-5)
    far = np.array([[1e-3], [0.8]])
    errors = replace(truth, feature_scores=far).errors({"feature_scores": far + 8e-4})
    assert errors["feature_scores"] == pytest.approx(1e-3)


def test_likenesses_are_compared_in_nats_and_distances_beside_them_are_not() -> None:
    scores = np.array([[0.05, -3.0, 1.0], [0.02, 2.0, -0.1]])
    truth = Truth(np.zeros((2, 4), np.float32), np.zeros((2, 3)), np.ones((2, 3)), feature_scores=scores)
    for column, expected in ((0, 1e-3 / 0.1), (1, 1e-3 / 10), (2, 1e-3 / 10)):
        off = scores.copy()
        off[:, column] += 1e-3
        assert truth.errors({"feature_scores": off})["feature_scores"] == pytest.approx(expected)


def test_a_likeness_far_below_zero_decides_nothing() -> None:
    scores = np.array([[0.05, -52.0], [0.02, -9.0]])
    truth = Truth(np.zeros((2, 4), np.float32), np.zeros((2, 3)), np.ones((2, 3)), feature_scores=scores)
    for row, off, expected in ((0, 0.2, 0.0), (0, 47.0, 5 / 52), (1, 0.2, 0.2 / 52)):
        served = scores.copy()
        served[row, 1] += off
        assert truth.errors({"feature_scores": served})["feature_scores"] == pytest.approx(expected)
