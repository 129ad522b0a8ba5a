"""Several targets, in different units: each has its noise, and units change nothing but the numbers in them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from demur.offline import FitConfig, fit_bundle
from demur.offline.evaluation.evaluate import evaluate
from demur.offline.export.standalone.file import export_standalone
from demur.service.bundle import read_bundle
from demur.service.format.manifest_json import manifest_from_json
from demur.service.format.rules import ManifestError
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.inference.predictor import Predictor
from demur.service.schemas import PredictResponse
from tests import reference
from tests.support.client import serving
from tests.support.manifests import document

pytestmark = pytest.mark.usefixtures("short_fits")

TRUTH = torch.randn(4, 3, generator=torch.Generator().manual_seed(5))
NOISE = torch.tensor([0.1, 0.3, 1.0])
UNITS = torch.tensor([1.0, 1000.0, 0.01])
CONFIG: dict[str, Any] = {"likelihood": "regression"}


class InUnits(nn.Module):
    """The outputs of a network, each in another unit."""

    def __init__(self, network: nn.Module, units: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("units", units)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(x) * self.units
        return found


ONES = torch.ones(3)


def data(count: int, seed: int, units: Tensor = ONES) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    return x, units * (torch.tanh(x @ TRUTH) + NOISE * torch.randn(count, 3, generator=generator))


def trained() -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 3))
    x, y = data(600, 0)
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.mse_loss(network(x), y).backward()
        optimiser.step()
    return network


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return trained()


@pytest.fixture(scope="module")
def fitted(network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("targets")
    in_units, config = InUnits(network, UNITS), FitConfig(**CONFIG)
    held_out = data(400, 1, UNITS)
    return fit_bundle(in_units, data(600, 0, UNITS), folder / "bundle", calibration_loader=held_out, config=config)


def test_each_target_has_its_noise(network: nn.Module, fitted: Path) -> None:
    noises, (x, y) = read_bundle(fitted).manifest.noises, data(3000, 8)
    assert noises is not None
    with torch.no_grad():
        residuals = (y - network(x)).square().mean(0).sqrt() * UNITS
    np.testing.assert_allclose(noises, residuals, rtol=0.1)
    assert f"0 {noises[0]:.4g}"[:5] in (fitted / "report.html").read_text()


def test_units_change_nothing(network: nn.Module, fitted: Path, tmp_path: Path) -> None:
    """The same network and data with all targets in one unit, fitted by defaults, with added weights."""
    plain = Predictor.load(
        fit_bundle(
            InUnits(network, torch.ones(3)),
            data(600, 0),
            tmp_path / "plain",
            calibration_loader=data(400, 1),
            config=FitConfig(**CONFIG),
        )
    )
    x = torch.cat([data(50, 2)[0], 20 * data(5, 3)[0]]).numpy()
    found, expected, units = Predictor.load(fitted).predict(x), plain.predict(x), UNITS.numpy()
    np.testing.assert_allclose(found.mean / units, expected.mean, rtol=1e-4, atol=1e-5)
    # Just beyond the gate a variance is a small difference of float32 numbers.
    np.testing.assert_allclose(found.variance / units**2, expected.variance, rtol=1e-3, atol=3e-5)
    assert found.std is not None
    assert expected.std is not None
    np.testing.assert_allclose(found.std, expected.std * units, rtol=1e-3)
    np.testing.assert_allclose(found.p_value, expected.p_value, atol=0.006)
    np.testing.assert_array_equal(found.rejected, expected.rejected)
    assert found.rejected[-5:].all()


def before_the_gate(own: np.ndarray, passed: np.ndarray, threshold: float) -> np.ndarray:
    """a, of which the gate lets a (1 - t / (s v_S + a)) pass."""
    b = own - threshold - passed
    found: np.ndarray = (np.sqrt(b**2 + 4 * passed * own) - b) / 2
    return found


@pytest.mark.parametrize("added", [False, True])
def test_variances_equal_the_oracle(network: nn.Module, added: bool, tmp_path: Path) -> None:
    """Subnetwork: the explicit posterior with a noise for each target. Added weights: r_k^2 of one variance,
    and the gate before both."""
    options = {**CONFIG, "subnetwork_size": 1.0, "selection": "random", "prior_precision": 3.0, "added_weights": added}
    model = InUnits(network, UNITS)
    path = fit_bundle(
        model,
        data(60, 0, UNITS),
        tmp_path / "bundle",
        calibration_loader=data(200, 1, UNITS),
        config=FitConfig(**options),
    )
    predictor, x = Predictor.load(path), 5 * data(10, 2)[0]  # unusual ones
    noises = np.array(predictor.manifest.noises)
    mean, jacobian = reference.full_jacobian(model, data(60, 0)[0])
    precision = reference.posterior_precision(mean, jacobian, "regression", 3.0, noises)
    expected = reference.variance(reference.full_jacobian(model, x)[1], precision)
    found = predictor.predict(x.numpy())
    if added:
        assert found.added_variance is not None
        part, ratios = predictor.manifest.added_weights, noises / np.prod(noises) ** (1 / 3)
        assert part is not None
        assert part.gate is not None
        own, threshold = part.gate.subnetwork_scale * expected / ratios**2, part.gate.threshold
        other = before_the_gate(own.mean(1), found.added_variance.astype(np.float64), threshold)
        unusual = own.mean(1) + other
        assert (unusual > threshold).all()
        expected = (1 - threshold / unusual)[:, np.newaxis] * (own + other[:, np.newaxis]) * ratios**2
    np.testing.assert_allclose(found.variance, expected, rtol=2e-4)
    assert found.std is not None
    np.testing.assert_allclose(found.std, np.sqrt(expected + noises**2), rtol=2e-4)


def test_intervals_of_each_target_hold(fitted: Path) -> None:
    predictor, (x, y) = Predictor.load(fitted), data(2000, 7, UNITS)
    found = predictor.predict(x.numpy())
    assert found.std is not None
    inside = np.abs(found.mean - y.numpy()) <= 1.96 * found.std
    np.testing.assert_allclose(inside.mean(axis=0), 0.95, atol=0.03)
    figures = evaluate(predictor, (x, y))
    assert figures.laplace["coverage_95"].value == pytest.approx(0.95, abs=0.03)


def test_the_answer_of_the_service(fitted: Path) -> None:
    predictor, x = Predictor.load(fitted), data(3, 2)[0]
    with serving(predictor) as client:
        response = client.predict({"inputs": x.tolist()}, "?detail=full")
    PredictResponse.model_validate(response.json())
    prediction = predictor.predict(x.numpy())
    scale = np.ones((3, 3)) if prediction.noise_scale is None else prediction.noise_scale
    assert prediction.std is not None
    for one, std, scales in zip(response.json()["predictions"], prediction.std, scale, strict=True):
        assert one["noise_std"] == pytest.approx(scales * predictor.manifest.noises, rel=1e-5)
        assert one["names"] is None
        parts = one["variance_parts"]
        total = np.add(parts["subnetwork"], parts["added"])
        np.testing.assert_allclose(total, one["variance"], rtol=1e-5)
        np.testing.assert_allclose(total + np.square(one["noise_std"]), np.square(std), rtol=1e-4)


def test_the_one_file_answers_alike(fitted: Path, tmp_path: Path) -> None:
    export_standalone(fitted, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    x = data(20, 4)[0].numpy()
    names = ["mean", "std", "score", "rejected"]
    expected = Predictor.load(fitted).predict(x)
    for name, values in zip(names, session.run(names, {"inputs": x}), strict=True):
        np.testing.assert_allclose(values, getattr(expected, name), rtol=1e-5, err_msg=name)


@pytest.mark.usefixtures("without_export")
def test_columns_of_a_frame_name_the_targets(network: nn.Module, tmp_path: Path) -> None:
    (x, y), (u, v) = data(200, 0), data(200, 1)
    names = ["length", "weight", "age"]
    frame, held_out = pd.DataFrame(y.numpy(), columns=names), pd.DataFrame(v.numpy(), columns=names)
    config = FitConfig(**CONFIG)
    path = fit_bundle(
        network,
        (x, frame),
        tmp_path / "bundle",
        calibration_loader=(u, held_out[["age", "length", "weight"]]),
        config=config,
    )
    manifest = read_bundle(path).manifest
    assert manifest.class_names == tuple(names)
    plain = fit_bundle(network, (x, y), tmp_path / "plain", calibration_loader=(u, v), config=config)
    assert read_bundle(plain).manifest.noises == manifest.noises


def test_other_names_than_those_of_the_columns_are_refused(network: nn.Module, tmp_path: Path) -> None:
    """By the names, a later evaluation finds the columns."""
    x, y = data(200, 0)
    pair = x, pd.DataFrame(y.numpy(), columns=["length", "weight", "age"])
    names, words = ["age", "weight", "length"], "expected those of the targets' columns, length, weight, age, or none"
    with pytest.raises(ValueError, match=words):
        fit_bundle(
            network, pair, tmp_path / "b", calibration_loader=pair, class_names=names, config=FitConfig(**CONFIG)
        )


def test_names_are_in_every_answer(network: nn.Module, tmp_path: Path) -> None:
    path = fit_bundle(
        network,
        data(200, 0),
        tmp_path / "bundle",
        calibration_loader=data(200, 1),
        class_names=["length", "weight", "age"],
        config=FitConfig(**CONFIG, added_weights=False, subnetwork_size=5, selection="random", prior_precision=1.0),
    )
    predictor, x = Predictor.load(path), data(2, 2)[0]
    frame = predictor.predict(x.numpy()).to_frame()
    assert frame.columns[:4].tolist() == ["mean_length", "mean_weight", "mean_age", "std_length"]
    with serving(predictor) as client:
        (first, _) = client.predict({"inputs": x.tolist()}).json()["predictions"]
    assert first["names"] == ["length", "weight", "age"]


@pytest.mark.parametrize("sigma", [[0.1, 0.2], [0.1, 0.2, 0.0], [], None])
def test_manifests_that_are_refused(fitted: Path, sigma: Any) -> None:
    with pytest.raises(ManifestError, match="sigma_noise: found"):
        manifest_from_json(document(read_bundle(fitted).manifest) | {"sigma_noise": sigma})
