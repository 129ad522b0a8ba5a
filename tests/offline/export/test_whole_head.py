"""A whole head is served exactly, unless the factor of its posterior is too large for a graph."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import demur.offline.fit
from demur.offline import ExportError, FitConfig, fit_bundle
from demur.offline.export import graph
from demur.service import Predictor, read_bundle
from tests import reference
from tests.support.small_fit import batches

# the exporter's own deprecations are not ours to mend
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("short_fits")]

OUTPUTS, WIDTH = 10, 128
CONFIG = FitConfig(
    subnetwork_size=OUTPUTS * (WIDTH + 1),
    selection="last-layer",
    prior_precision=2.0,
    false_reject_rate=0.1,
    device="cpu",
    added_weights=False,
    temperature=1.0,
)


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, OUTPUTS))


def fit(network: nn.Module, path: Path) -> None:
    train, held_out = batches(200, classes=OUTPUTS), batches(40, seed=1, classes=OUTPUTS)
    fit_bundle(network, train, path, calibration_loader=held_out, config=CONFIG)


def test_the_variances_are_those_of_the_posterior(network: nn.Sequential, tmp_path: Path) -> None:
    """Also far from the data; its factor is the work of several forward passes."""
    fit(network, tmp_path / "bundle")
    bundle = read_bundle(tmp_path / "bundle")
    inputs = torch.cat([torch.randn(16, 4), 30 * torch.randn(16, 4)])
    jacobian = reference.full_jacobian(network, inputs)[1][:, :, bundle.subnetwork_indices]
    served = Predictor.load(tmp_path / "bundle").predict(inputs.numpy()).variance
    np.testing.assert_allclose(served, bundle.posterior.variance(jacobian), rtol=1e-5)


def test_a_factor_that_no_graph_holds_is_refused_before_the_curvature(
    tmp_path: Path, network: nn.Sequential, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "LARGEST_FACTOR", 10_000)
    monkeypatch.setattr(demur.offline.fit, "accumulate_ggn", None)
    size = 4 * 10 * 129**2
    message = f"found a posterior over 1290 weights, whose factor takes {size} bytes, .* a smaller subnetwork_size$"
    with pytest.raises(ExportError, match=message):
        fit(network, tmp_path / "bundle")
