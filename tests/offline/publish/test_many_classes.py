"""Bundles of more classes than the curvature takes one by one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from demur.offline import FitConfig, fit_bundle
from demur.service import Predictor
from demur.service.bundle import read_manifest
from tests.support.small_fit import CONFIG, batches

# the exporter's own deprecations are not ours to mend
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("short_fits")]


def test_many_classes(tmp_path: Path) -> None:
    """More than the curvature takes one by one; each has a variance of its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 100))
    config = FitConfig(subnetwork_size=200, selection="random", curvature_outputs=16, device="cpu", seed=1)
    train, held_out = batches(200, classes=100), batches(80, seed=1, classes=100)
    fit_bundle(model, train, tmp_path / "bundle", calibration_loader=held_out, config=config)
    predictor = Predictor.load(tmp_path / "bundle")
    verification = predictor.manifest.verification
    assert verification is not None
    assert verification.variance_error < 1e-4
    variance = predictor.predict(10 * batches(8, seed=2)[0][0].numpy()).variance  # unusual ones
    assert all(len(np.unique(row)) > 50 for row in variance)


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
