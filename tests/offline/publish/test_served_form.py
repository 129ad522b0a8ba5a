"""A whole head is served in fewer directions where that is faster, and the bundle says by how much it is off."""

import itertools
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import demur.offline.fit
from demur.card import print_card
from demur.offline import ExportError, FitConfig, fit_bundle
from demur.offline.publish import served_form
from demur.service import Predictor, read_bundle
from demur.service.bundle import Graph, read_manifest
from tests import reference
from tests.support.small_fit import Batches, batches

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


def data(count: int, seed: int = 0) -> Batches:
    return batches(count, seed, classes=OUTPUTS)


def inputs_of(loader: Batches) -> Tensor:
    return torch.cat([inputs for inputs, _ in loader])


def graph_of(network: nn.Module, path: Path, **changes: object) -> Graph:
    """What the manifest says of it."""
    config = CONFIG.model_copy(update=changes)
    fit_bundle(network, data(200), path, calibration_loader=data(40, seed=1), config=config)
    return read_manifest(path)[0].graph


def fit(network: nn.Module, path: Path, **changes: object) -> tuple[Predictor, Graph]:
    graph = graph_of(network, path, **changes)
    return Predictor.load(path), graph


def whole_variance(network: nn.Module, path: Path, inputs: Tensor) -> np.ndarray:
    """By the posterior in the bundle, which is the whole one."""
    bundle = read_bundle(path)
    jacobian = reference.full_jacobian(network, inputs)[1][:, :, bundle.subnetwork_indices]
    variance: np.ndarray = bundle.posterior.variance(jacobian)
    return variance


def test_the_variances_are_within_the_bound_of_the_whole_posterior(
    network: nn.Sequential, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor, graph = fit(network, tmp_path / "bundle")
    assert graph.reduced is not None
    assert graph.reduced.rank < WIDTH / 2
    assert 0 < graph.reduced.error <= graph.reduced.error_bound <= served_form.REDUCTION_TOLERANCE
    assert graph.reduced.examples == 40
    inputs = torch.cat([inputs_of(data(16, seed=2)), 30 * torch.randn(16, 4)])
    errors = predictor.predict(inputs.numpy()).variance / whole_variance(network, tmp_path / "bundle", inputs) - 1
    assert 0 < np.abs(errors).max() <= graph.reduced.error_bound + 1e-5
    verification = predictor.manifest.verification
    assert verification is not None
    assert verification.variance_error < 1e-4
    assert verification.tolerance == 1e-4
    print_card(tmp_path / "bundle")
    assert f"rank {graph.reduced.rank} for each output, variances off by at most" in capsys.readouterr().out


def test_the_threshold_is_set_with_the_variances_that_are_served(
    network: nn.Sequential, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_form, "REDUCTION_TOLERANCE", 0.5)
    predictor, _ = fit(network, tmp_path / "bundle")
    served = np.sort(predictor.predict(inputs_of(data(40, seed=1)).numpy()).score)
    np.testing.assert_allclose(read_bundle(tmp_path / "bundle").calibration.scores, served, rtol=1e-5)


@pytest.mark.usefixtures("without_export")
def test_a_smaller_tolerance_keeps_more_directions(
    network: nn.Sequential, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = []
    for tolerance in (0.3, 1e-4):
        monkeypatch.setattr(served_form, "REDUCTION_TOLERANCE", tolerance)
        graph = graph_of(network, tmp_path / str(tolerance))
        ranks.append(WIDTH + 1 if graph.reduced is None else graph.reduced.rank)
    assert ranks[0] < ranks[1]


def test_no_clock_decides(network: nn.Sequential, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that finds everything the slower the later it comes, the form is the same, and so is the graph."""
    ticks = itertools.count()
    exact = fit(network, tmp_path / "quiet")[1].reduced
    with monkeypatch.context() as lying:
        lying.setattr(time, "thread_time", lambda: float(next(ticks) ** 2))
        lying.setattr(time, "perf_counter", lambda: float(next(ticks) ** 2))
        _, graph = fit(network, tmp_path / "busy")
    assert graph.reduced == exact
    assert read_bundle(tmp_path / "busy").digest == read_bundle(tmp_path / "quiet").digest


def test_a_factor_that_no_graph_holds_is_refused_before_the_curvature(
    tmp_path: Path, network: nn.Sequential, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_form, "LARGEST_FACTOR", 10_000)
    monkeypatch.setattr(demur.offline.fit, "accumulate_ggn", None)
    size = 4 * 10 * 129**2
    message = f"found a posterior over 1290 weights, whose factor takes {size} bytes, .* a smaller subnetwork_size$"
    with pytest.raises(ExportError, match=message):
        fit(network, tmp_path / "bundle")


@pytest.mark.usefixtures("without_export")
def test_other_posteriors_are_served_as_they_are(network: nn.Sequential, tmp_path: Path) -> None:
    assert graph_of(network, tmp_path / "bundle", selection="random").reduced is None


@pytest.mark.usefixtures("without_export")
def test_a_small_head_is_served_exactly(tmp_path: Path) -> None:
    """The product with its factor is too little work to be worth an approximation."""
    torch.manual_seed(0)
    small = nn.Sequential(nn.Linear(4, 40), nn.Tanh(), nn.Linear(40, OUTPUTS))
    assert graph_of(small, tmp_path / "bundle").reduced is None
