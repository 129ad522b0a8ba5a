"""A bundle's predictive in torch is the one that the service computes."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from demur.offline import FitConfig, fit_bundle
from demur.service.bundle import read_bundle
from demur.service.inference.predictor import Predictor
from paper.images.on_device import predictive


def test_probabilities_are_those_of_the_predictor(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    inputs, targets = torch.randn(60, 6), torch.arange(60) % 4
    config = FitConfig(
        subnetwork_size=20,
        selection="random",
        prior_precision=2.0,
        temperature=1.5,
        added_weights=False,
    )
    path = fit_bundle(model, [(inputs, targets)], tmp_path / "b", calibration_loader=[(inputs, targets)], config=config)
    expected = Predictor.load(path).predict(inputs.numpy()).probabilities
    assert expected is not None
    found = predictive(model, read_bundle(path), (inputs[:2], targets[:2]))(inputs)
    np.testing.assert_allclose(found, expected, atol=1e-5)
