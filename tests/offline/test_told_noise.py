"""Networks of means and (log) variances, as trained with `GaussianNLLLoss`, from the fit to the answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from demur.offline import FitConfig, fit_bundle
from demur.offline.data.likelihood import likelihood_of
from demur.offline.evaluation.evaluate import evaluate
from demur.offline.export.standalone.file import export_standalone
from demur.offline.fit import dry_run
from demur.service.bundle import MODEL, read_manifest
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.inference.predictor import Predictor

pytestmark = pytest.mark.usefixtures("short_fits")

Pack = Callable[[Tensor, Tensor], object]


def side_by_side(mean: Tensor, other: Tensor) -> Tensor:
    return torch.cat([mean, other], dim=1)


FORMS: dict[str, tuple[Pack, str]] = {
    "log variances in a tuple": (lambda mean, log: (mean, log), "log variance"),
    "variances in a list": (lambda mean, log: [mean, log.exp()], "variance"),
    "deviations, flat": (lambda mean, log: (mean.squeeze(1), (log / 2).exp().squeeze(1)), "standard deviation"),
    "log variances side by side": (side_by_side, "log variance"),
    "variances side by side": (lambda mean, log: side_by_side(mean, log.exp()), "variance"),
}


class Gaussian(nn.Module):
    """Two heads, and what is made of them."""

    def __init__(self, pack: Pack, outputs: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.mean, self.log_variance, self.pack = nn.Linear(32, outputs), nn.Linear(32, outputs), pack

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.mean(h), self.log_variance(h)

    def forward(self, x: Tensor) -> object:
        return self.pack(*self.both(x))


def deviation(x: Tensor) -> Tensor:
    """Of the noise, by a column that the mean ignores, (B, 1)."""
    return 0.1 * (1.2 * x[:, 2:3]).exp()


def drawn(count: int, seed: int, outputs: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 3, generator=generator) * 4 - 2
    mean = torch.cat([x[:, :1].sin(), x[:, 1:2]], dim=1)[:, :outputs]
    return x, mean + deviation(x) * torch.randn(count, outputs, generator=generator)


def trained(pack: Pack, outputs: int = 1) -> Gaussian:
    torch.manual_seed(0)
    network, (x, y) = Gaussian(pack, outputs), drawn(1500, 0, outputs)
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(250):
        optimiser.zero_grad()
        mean, log_variance = network.both(x)
        nn.functional.gaussian_nll_loss(mean, y, log_variance.exp()).backward()
        optimiser.step()
    return network


def fitted(network: nn.Module, folder: Path, outputs: int = 1, **options: Any) -> tuple[Path, list[str]]:
    config = FitConfig.model_validate({"likelihood": "regression", "device": "cpu", "subnetwork_size": 100, **options})
    told: list[str] = []
    data = drawn(800, 0, outputs), drawn(300, 1, outputs)
    path = fit_bundle(network, data[0], folder / "bundle", calibration_loader=data[1], config=config, say=told.append)
    return path, told


@pytest.fixture(scope="module", params=FORMS)
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Gaussian, str]:
    pack, reading = FORMS[request.param]
    network = trained(pack)
    path, told = fitted(network, tmp_path_factory.mktemp("told"))
    assert any(line.startswith("the model returns two values of each target") for line in told)
    assert any(line.endswith(f"; the model's second value is a {reading}") for line in told)
    return path, network, reading


def test_the_noise_is_the_networks_times_one_factor(each: tuple[Path, Gaussian, str]) -> None:
    path, network, reading = each
    x, _ = drawn(500, 2)
    found, (manifest, _) = Predictor.load(path).predict(x.numpy()), read_manifest(path)
    with torch.no_grad():
        mean, log_variance = (part.numpy() for part in network.both(x))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-4, atol=1e-5)
    assert found.noise_scale is not None
    ordinary = (found.variance == 0).all(axis=1)
    assert ordinary.mean() > 0.8
    ratios = (found.noise_scale / np.exp(log_variance / 2))[ordinary]
    assert np.quantile(ratios, 0.98) == pytest.approx(np.quantile(ratios, 0.02), rel=1e-3)
    assert manifest.noises is not None
    assert 0.8 < np.median(ratios) * manifest.noises[0] < 1.3
    assert manifest.added_weights is not None
    assert manifest.added_weights.explanation.endswith(f"a {reading}")
    assert manifest.verification is not None
    assert manifest.verification.noise_scale_error is not None
    assert manifest.verification.noise_scale_error < 1e-4


def test_the_intervals_of_every_fifth_hold(each: tuple[Path, Gaussian, str]) -> None:
    x, y = drawn(3000, 3)
    predictor = Predictor.load(each[0])
    low, high = predictor.decision.intervals(predictor.predict(x.numpy()))
    held = (low <= y.numpy()) & (y.numpy() <= high)
    order = np.argsort(deviation(x)[:, 0].numpy())
    assert min(part.mean() for part in np.array_split(held[order], 5)) > 0.88


def test_evaluation_and_the_standalone_file_have_it(each: tuple[Path, Gaussian, str], tmp_path: Path) -> None:
    x = torch.cat([drawn(20, 4)[0], torch.full((1, 3), 30.0)]).numpy()
    written = export_standalone(each[0], tmp_path / "model.onnx")
    std, scale = onnxruntime.InferenceSession(str(written.path)).run(["std", "noise_scale"], {"inputs": x})
    expected = Predictor.load(each[0]).predict(x)
    assert expected.std is not None
    assert expected.noise_scale is not None
    np.testing.assert_allclose(std, expected.std, rtol=1e-5)
    np.testing.assert_allclose(scale, expected.noise_scale, rtol=1e-5)
    assert scale[-1, 0] > 0.999  # far out it is no less than one noise for all
    found = evaluate(Predictor.load(each[0]), drawn(1000, 5))
    inputs, targets = drawn(1000, 5)
    square = float(np.square(Predictor.load(each[0]).predict(inputs.numpy()).mean - targets.numpy()).mean())
    assert found.laplace["log_likelihood"].value > -0.5 * np.log(2 * np.pi * np.e * square) + 0.3  # one noise for all


def test_several_targets_have_a_factor_each(tmp_path: Path) -> None:
    network = trained(side_by_side, 2)
    path, _ = fitted(network, tmp_path, 2)
    x, _ = drawn(500, 2, 2)
    found = Predictor.load(path).predict(x.numpy())
    assert found.noise_scale is not None
    ratios = found.noise_scale / np.exp(network.both(x)[1].detach().numpy() / 2)
    np.testing.assert_allclose(np.median(ratios, axis=0), ratios[0], rtol=1e-3)


@pytest.mark.parametrize("options", [{"added_weights": False}, {"sigma_noise": 0.5}], ids=str)
def test_without_added_weights_or_with_a_given_noise_it_is_not_served(options: dict[str, Any], tmp_path: Path) -> None:
    path, told = fitted(trained(side_by_side), tmp_path, **options)
    assert "noise_scale" not in {output.name for output in onnx.load(path / MODEL).graph.output}
    assert any("warning: the noise that the model gives is not served" in line for line in told)


def test_values_that_tell_nothing_are_not_taken(tmp_path: Path) -> None:
    network = trained(lambda mean, log: (mean, -2 * log))
    path, told = fitted(network, tmp_path)
    manifest, _ = read_manifest(path)
    assert manifest.input_noise is not None  # fitted in their place
    assert any("that it makes likelier, beyond chance" in line for line in told)


@pytest.mark.parametrize(
    "pack",
    [
        lambda mean, log: torch.cat([mean, log, log], dim=1),
        lambda mean, log: (torch.cat([mean, mean], dim=1), log),
    ],
    ids=["three columns", "two means"],
)
def test_another_number_of_values_is_refused_with_what_is_expected(pack: Pack, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one of means and log variances returns two tensors of the targets' shape"):
        fitted(Gaussian(pack), tmp_path)


def test_whole_numbers_are_no_targets_of_a_mean_and_a_variance() -> None:
    likelihood = likelihood_of("regression", 2)
    with pytest.raises(
        ValueError, match=r"both side by side, and its targets are no whole numbers: targets\.float\(\)"
    ):
        likelihood.check_targets(torch.arange(4), 4)


def test_other_things_beside_the_means_are_left_alone(tmp_path: Path) -> None:
    """Features, or one value for several targets."""
    network = Gaussian(lambda mean, log: (mean, log.expand(-1, 5)))
    _, told = fitted(network, tmp_path)
    assert not any("two values" in line for line in told)


def test_whole_numbers_have_a_noise_too() -> None:
    """Prices and counts: of two tensors none can be logits of classes."""
    x, y = drawn(100, 0)
    network, config = Gaussian(lambda mean, log: (mean, log)), FitConfig(likelihood="regression", device="cpu")
    found = dry_run(network, (x, (10 * y).round().long()), config)
    assert any(line.startswith("the model returns two values of each target") for line in found)
