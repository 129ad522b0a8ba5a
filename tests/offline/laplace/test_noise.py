"""The noise of a regression comes from held-out residuals, so that its intervals hold what they say."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline import FitConfig, fit_bundle
from demur.offline.data.held_out import TUNING_SHARE, HeldOut
from demur.offline.data.likelihood import Regression, gaussian_log_likelihood
from demur.offline.evaluation.evaluate import evaluate
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import accumulate_ggn
from demur.offline.laplace.noise import STEPS, likeliest_noise, residual_noise
from demur.offline.laplace.posterior import Spectrum
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.progress import silent
from demur.service import Predictor
from demur.service.bundle import Manifest, read_manifest
from tests import reference

pytestmark = pytest.mark.usefixtures("short_fits")

CPU = torch.device("cpu")
Data = tuple[Tensor, Tensor]


def drawn(count: int, seed: int, noise: float = 0.5) -> Data:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 3, generator=generator)
    return inputs, inputs.sum(1, keepdim=True).sin() + noise * torch.randn(count, 1, generator=generator)


def trained(data: Data, width: int, steps: int) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(data[0].shape[1], width), nn.Tanh(), nn.Linear(width, 1))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.mse_loss(network(data[0]), data[1]).backward()
        optimiser.step()
    return network


def config(**changes: object) -> FitConfig:
    options: dict[str, object] = {
        "likelihood": "regression",
        "subnetwork_size": 40,
        "selection": "random",
        "device": "cpu",
    }
    options["added_weights"] = False  # the noise beside the subnetwork's variances alone
    return FitConfig.model_validate(options | changes)


# --------------------------------------------------------------------------- the estimates


def test_the_first_estimate_is_the_root_mean_square_residual() -> None:
    network, (inputs, targets) = nn.Linear(3, 2), drawn(300, 0)
    wide = targets * torch.tensor([1.0, 100.0])
    with torch.no_grad():
        expected = (wide - network(inputs)).double().square().mean(0).sqrt().tolist()
        exact = torch.cat([network(inputs)[:, :1] + 1, network(inputs)[:, 1:]], dim=1)
    noise, ratios = residual_noise(network, HeldOut(inputs, wide))
    assert ratios is not None
    assert [noise * ratio for ratio in ratios] == pytest.approx(expected, rel=1e-6)
    assert float(np.prod(ratios)) == pytest.approx(1)
    one = nn.Linear(3, 1)
    with torch.no_grad():
        rms = float((targets - one(inputs)).double().square().mean().sqrt())
    noise, ratios = residual_noise(one, HeldOut(inputs, targets))
    assert noise == pytest.approx(rms, rel=1e-6)
    assert ratios is None
    with pytest.raises(ValueError, match=r"fits the held-out data exactly in output 1, so .*give a number"):
        residual_noise(network, HeldOut(inputs, exact))


@pytest.mark.parametrize("ratios", [None, (0.1, 2.0, 5.0)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_likeliest_noise_equals_a_slow_search(outputs: int, ratios: tuple[float, ...] | None) -> None:
    """Each noise with a posterior of its own, by the explicit formula in float64."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs))
    train, held_out = drawn(12, 0), drawn(9, 1)
    (x, y), (ux, uy) = ((part[0], part[1].expand(-1, outputs)) for part in (train, held_out))
    layout = WeightLayout.of(model)
    indices = torch.arange(0, layout.total, 2)
    jacobian = make_jacobian(private_copy(model, CPU), layout, indices, ux)
    first, used = 0.9, 0.7
    likelihood = Regression(outputs, first, None if ratios is None else ratios[:outputs])
    ggn = accumulate_ggn(jacobian, [(x, y)], likelihood).ggn
    found = likeliest_noise(jacobian, Spectrum.of(ggn / first**2), used, HeldOut(ux, uy), likelihood, silent)

    mean, train_jacobian = reference.full_jacobian(model, x)
    held_mean, held_jacobian = reference.full_jacobian(model, ux)
    chosen = indices.numpy()
    merits = []
    for noise in first * STEPS:
        each = noise * np.array((ratios or (1.0, 1.0, 1.0))[:outputs])
        precision = reference.posterior_precision(mean, train_jacobian[:, :, chosen], "regression", used, each)
        variance = reference.variance(held_jacobian[:, :, chosen], precision)
        merits.append(gaussian_log_likelihood(held_mean, np.sqrt(variance + each**2), uy.numpy()).sum())
    assert found == pytest.approx(first * STEPS[int(np.argmax(merits))], rel=0.011)


# --------------------------------------------------------------------------- through the fit


def manifest_of(tmp_path: Path, network: nn.Module, train: Data, calibration: Data, **changes: object) -> Manifest:
    out = tmp_path / "bundle"
    fit_bundle(network, [train], out, calibration_loader=[calibration], config=config(**changes))
    return read_manifest(out)[0]


def fitted(tmp_path: Path, network: nn.Module, train: Data, calibration: Data, **changes: object) -> Predictor:
    manifest_of(tmp_path, network, train, calibration, **changes)
    return Predictor.load(tmp_path / "bundle")


@pytest.mark.slow
def test_an_overfitted_networks_intervals_hold_what_they_say(tmp_path: Path) -> None:
    train, calibration, test = drawn(80, 0), drawn(600, 1), drawn(4000, 2)
    predictor = fitted(tmp_path, trained(train, 60, 1500), train, calibration)
    manifest = predictor.manifest
    assert manifest.metrics["noise_examples"] == 300
    assert isinstance(manifest.sigma_noise, float)
    assert manifest.metrics["train_rmse"] < 0.6 * manifest.sigma_noise, "the network is not overfitted: another test"
    assert evaluate(predictor, [test]).laplace["coverage_95"].value == pytest.approx(0.95, abs=0.025)
    assert manifest.metrics["calibration_coverage_95"] == pytest.approx(0.95, abs=0.04)
    assert not [text for text in manifest.warnings if "intervals" in text]
    report = (tmp_path / "bundle" / "report.html").read_text()
    assert "intervals hold" in report


@pytest.mark.parametrize("prior", [2.0, "marglik"])
def test_every_kind_of_prior_takes_the_held_out_noise(tmp_path: Path, prior: object) -> None:
    train, calibration, test = drawn(80, 0), drawn(400, 1), drawn(4000, 2)
    predictor = fitted(tmp_path, trained(train, 60, 800), train, calibration, prior_precision=prior)
    assert evaluate(predictor, [test]).laplace["coverage_95"].value == pytest.approx(0.95, abs=0.03)


@pytest.mark.usefixtures("without_export")
def test_the_half_that_sets_the_threshold_has_no_say(tmp_path: Path) -> None:
    train, (inputs, targets) = drawn(80, 0), drawn(200, 1)
    network, half = trained(train, 20, 100), round(TUNING_SHARE * 200)
    order = np.random.default_rng(0).permutation(200)  # as `HeldOut.split` draws for seed 0
    spoilt = {name: targets.clone() for name in ("tunes", "sets the threshold")}
    spoilt["tunes"][order[:half]] *= 3
    spoilt["sets the threshold"][order[half:]] *= 3
    noises = {}
    for name, changed in {"neither": targets, **spoilt}.items():
        noises[name] = manifest_of(tmp_path / name, network, train, (inputs, changed)).sigma_noise
    assert noises["sets the threshold"] == noises["neither"]
    assert noises["tunes"] > 1.2 * noises["neither"]  # type: ignore[operator]


@pytest.mark.usefixtures("without_export")
def test_intervals_that_hold_too_little_are_to_be_checked(tmp_path: Path) -> None:
    train, calibration = drawn(80, 0), drawn(400, 1)
    manifest = manifest_of(tmp_path, trained(train, 20, 200), train, calibration, sigma_noise=0.2)
    (warning,) = (text for text in manifest.warnings if "intervals" in text)
    assert "mean -+ 1.96 std, are too narrow: they hold" in warning
    assert "sigma_noise" in warning
    assert "noise_examples" not in manifest.metrics


@pytest.mark.slow
@pytest.mark.skipif("DEMUR_DATA_DIR" not in os.environ, reason="needs the benchmark data")
def test_kin8nm(tmp_path: Path) -> None:
    """Real data, a standard split: with the noise of the training residuals 95 % held 79 to 81 %."""
    folder = Path(os.environ["DEMUR_DATA_DIR"]) / "uci" / "kin8nm"
    table = np.loadtxt(folder / "data.txt")
    x, y = table[:, :8], table[:, 8:9]
    first, last = (np.loadtxt(folder / "standard" / f"index_{part}_0.txt").astype(int) for part in ("train", "test"))
    first = np.random.default_rng(0).permutation(first)
    calibration, train = first[:1400], first[1400:4400]
    inputs = torch.as_tensor((x - x[train].mean(0)) / x[train].std(0), dtype=torch.float32)
    targets = torch.as_tensor((y - y[train].mean()) / y[train].std(), dtype=torch.float32)
    parts = [(inputs[rows], targets[rows]) for rows in (train, calibration, last)]
    predictor = fitted(tmp_path, trained(parts[0], 80, 1500), parts[0], parts[1], subnetwork_size=200)
    assert predictor.manifest.sigma_noise > 1.2 * predictor.manifest.metrics["train_rmse"]  # type: ignore[operator]
    assert evaluate(predictor, [parts[2]]).laplace["coverage_95"].value == pytest.approx(0.95, abs=0.025)
