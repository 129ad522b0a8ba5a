"""Bundles that compute a few variances: what they hold, and what their answers are."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline import FitConfig, fit_bundle
from demur.offline.publish.fill_effect import fill_warnings
from demur.service import Predictor
from demur.service.bundle import FillEffect, read_manifest
from tests.support.small_fit import CONFIG, batches, network

# the exporter's own deprecations are not ours to mend
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("short_fits")]


@pytest.mark.parametrize(("asked", "kind"), [(1, "top"), pytest.param("margin", "margin", marks=pytest.mark.slow)])
def test_the_manifest_says_what_is_computed_and_what_that_changes(tmp_path: Path, asked: str | int, kind: str) -> None:
    config = CONFIG.model_copy(update={"variance_of": asked, "subnetwork_size": 20})
    fit_bundle(network(), batches(80), tmp_path / "bundle", calibration_loader=batches(40, seed=1), config=config)
    predictor = Predictor.load(tmp_path / "bundle")
    graph = predictor.manifest.graph
    assert graph.computed is not None
    assert (graph.computed.kind, graph.computed.count) == (kind, 1)
    effect = graph.computed.effect
    assert effect is not None
    assert effect.examples == 20  # the other half tunes
    assert 0 < effect.probability_difference < 0.5
    prediction = predictor.predict(batches(8, seed=2)[0][0].numpy())
    assert prediction.probabilities is not None
    np.testing.assert_allclose(prediction.variance[:, 0], prediction.variance[:, 1], rtol=1e-6)
    np.testing.assert_array_equal(prediction.probabilities.argmax(1), prediction.mean.argmax(1))


@pytest.mark.parametrize(("probability", "decisions"), [(0.06, 0.0), (0.0, 0.06)])
def test_what_changes_answers_is_a_warning(probability: float, decisions: float) -> None:
    (text,) = fill_warnings(FillEffect(50, probability, -0.1, decisions))
    assert f"change a probability by {probability:.2g} on average and {100 * decisions:.0f} % of the decisions" in text
    assert fill_warnings(FillEffect(50, 0.05, 3.0, 0.05)) == []


def test_many_classes(tmp_path: Path) -> None:
    """More than the curvature takes one by one, with the five leading variances."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 100))
    config = FitConfig(
        subnetwork_size=200, selection="random", variance_of=5, curvature_outputs=16, device="cpu", seed=1
    )
    train, held_out = batches(200, classes=100), batches(80, seed=1, classes=100)
    fit_bundle(model, train, tmp_path / "bundle", calibration_loader=held_out, config=config)
    predictor = Predictor.load(tmp_path / "bundle")
    verification = predictor.manifest.verification
    assert verification is not None
    assert verification.variance_error < 1e-4
    variance = predictor.predict(batches(8, seed=2)[0][0].numpy()).variance
    for row in variance:
        values, counts = np.unique(row, return_counts=True)
        assert len(values) <= 6
        assert counts.max() >= 95


class Masked(nn.Module):
    """Two real classes, and six that are never meant."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.Linear(4, 6), nn.Linear(6, 8)
        self.register_buffer("gone", torch.arange(8) >= 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x).tanh()).masked_fill(self.get_buffer("gone"), -100.0)


@pytest.mark.parametrize(("zero", "asked"), [(False, 5), (True, 5), (True, "margin")])
def test_equal_outputs(tmp_path: Path, zero: bool, asked: str | int) -> None:
    """Which of them leads is the same in torch and in onnxruntime."""
    torch.manual_seed(0)
    model: nn.Module = Masked()
    if zero:
        head = nn.Linear(5, 8)
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), head)
    config = CONFIG.model_copy(update={"variance_of": asked, "subnetwork_size": 30, "added_weights": False})
    fit_bundle(model, batches(40), tmp_path / "bundle", calibration_loader=batches(40, seed=1), config=config)
    verification = Predictor.load(tmp_path / "bundle").manifest.verification
    assert verification is not None
    assert verification.variance_error < 1e-4


@pytest.mark.usefixtures("without_export")
def test_a_curvature_that_leaves_much_out_is_a_warning(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 50))
    config = CONFIG.model_copy(update={"curvature_outputs": 10, "subnetwork_size": 30})
    fit_bundle(
        model, batches(40, classes=50), tmp_path / "bundle", calibration_loader=batches(40, seed=1), config=config
    )
    manifest = read_manifest(tmp_path / "bundle")[0]
    assert 0.5 < manifest.metrics["curvature_probability_together"] < 0.9
    assert any("give more curvature_outputs than 10" in warning for warning in manifest.warnings)


@pytest.mark.usefixtures("without_export")
def test_all_outputs_need_no_rule(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"variance_of": 2})
    fit_bundle(network(), batches(20), tmp_path / "bundle", calibration_loader=batches(20, seed=1), config=config)
    graph = read_manifest(tmp_path / "bundle")[0].graph
    assert graph.computed is None


def test_a_regression_has_no_leading_output() -> None:
    with pytest.raises(ValueError, match="variance_of: found 'margin' for a regression, expected 'all'"):
        FitConfig(likelihood="regression", variance_of="margin")
