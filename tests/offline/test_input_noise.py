"""Noise that depends on the input, from the fit to the answer."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from demur.card import print_card
from demur.offline import FitConfig, fit_bundle
from demur.offline.evaluation.evaluate import evaluate
from demur.offline.export.standalone.file import export_standalone
from demur.service.bundle import MODEL, read_manifest
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.inference.predictor import Predictor

pytestmark = pytest.mark.usefixtures("short_fits")

Data = tuple[Tensor, Tensor]


def deviation(x: Tensor, column: int = 2) -> Tensor:
    """Of the noise, by a column that the mean ignores, (B, 1)."""
    return 0.1 * (1.2 * x[:, column : column + 1]).exp()


def drawn(count: int, seed: int, *, column: int | None = 2, outputs: int = 1) -> Data:
    """column: None for one noise for all."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 3, generator=generator) * 4 - 2
    noise = torch.full((count, 1), 0.3) if column is None else deviation(x, column)
    mean = torch.cat([x[:, :1].sin(), x[:, 1:2]], dim=1)[:, :outputs]
    return x, mean + noise * torch.randn(count, outputs, generator=generator)


def trained(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, outputs))
    x, y = drawn(800, 0, column=None, outputs=outputs)
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.mse_loss(network(x), y).backward()
        optimiser.step()
    return network


def fitted(folder: Path, *, column: int | None = 2, outputs: int = 1, count: int = 600, **options: object) -> Path:
    held_out = drawn(count, 1, column=column, outputs=outputs)
    config = FitConfig.model_validate({"likelihood": "regression", "device": "cpu", **options})
    train = drawn(800, 0, outputs=outputs)
    return fit_bundle(trained(outputs), train, folder / "bundle", calibration_loader=held_out, config=config)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("noise"))


def test_the_deviation_follows_the_noise(bundle: Path) -> None:
    x, _ = drawn(1000, 2)
    found = Predictor.load(bundle).predict(x.numpy())
    assert found.std is not None
    assert np.corrcoef(np.log(found.std[:, 0]), np.log(deviation(x)[:, 0].numpy()))[0, 1] > 0.9
    noise = read_manifest(bundle)[0].input_noise
    assert noise is not None
    assert noise.gain > 10 * noise.gain_error
    assert found.noise_scale is not None
    assert noise.least * 0.999 <= found.noise_scale.min() < found.noise_scale.max() <= noise.most * 1.001


def test_the_intervals_of_every_fifth_hold(bundle: Path) -> None:
    x, y = drawn(3000, 3)
    predictor = Predictor.load(bundle)
    prediction = predictor.predict(x.numpy())
    low, high = predictor.decision.intervals(prediction)
    held = (low <= y.numpy()) & (y.numpy() <= high)
    order = np.argsort(deviation(x)[:, 0].numpy())
    assert min(part.mean() for part in np.array_split(held[order], 5)) > 0.88


def test_far_from_the_data_the_noise_stays_what_it_was_there(bundle: Path) -> None:
    noise = read_manifest(bundle)[0].input_noise
    found = Predictor.load(bundle).predict(np.array([[1e4, -1e4, 1e4], [50.0, 50.0, 50.0]], np.float32))
    assert noise is not None
    assert found.noise_scale is not None
    assert noise.least * 0.999 <= found.noise_scale.min() <= found.noise_scale.max() <= noise.most * 1.001
    assert found.rejected.all()


def test_it_is_verified_and_said(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest, _ = read_manifest(bundle)
    assert manifest.verification is not None
    assert manifest.verification.noise_scale_error is not None
    assert manifest.verification.noise_scale_error < 1e-4
    report = (bundle / "report.html").read_text()
    assert "Where the 95 % intervals hold" in report
    assert "by the input" in report
    print_card(bundle)
    assert "by the input" in capsys.readouterr().out


def test_the_standalone_file_gives_the_same(bundle: Path, tmp_path: Path) -> None:
    x = torch.cat([drawn(20, 4)[0], torch.full((1, 3), torch.nan)]).numpy()
    written = export_standalone(bundle, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(written.path))
    std, scale, rejected = session.run(["std", "noise_scale", "rejected"], {"inputs": x})
    expected = Predictor.load(bundle).predict(x)
    assert expected.std is not None
    assert expected.noise_scale is not None
    np.testing.assert_allclose(std, expected.std, rtol=1e-5)
    np.testing.assert_allclose(scale, expected.noise_scale, rtol=1e-5)
    np.testing.assert_array_equal(rejected, expected.rejected)


def test_evaluation_compares_with_the_noise_of_each_input(bundle: Path) -> None:
    found = evaluate(Predictor.load(bundle), drawn(1000, 5))
    assert found.laplace["log_likelihood"].value == pytest.approx(found.plain["log_likelihood"].value, abs=0.05)
    x, y = drawn(1000, 5)
    square = float(np.square(Predictor.load(bundle).predict(x.numpy()).mean - y.numpy()).mean())
    assert found.plain["log_likelihood"].value > -0.5 * np.log(2 * np.pi * np.e * square) + 0.3  # one noise for all


@pytest.mark.parametrize(
    "options",
    [
        {"column": None},
        {"sigma_noise": 0.5},
        {"added_weights": False},
        {"count": 90},
    ],
    ids=str,
)
def test_otherwise_the_noise_is_one_number(options: dict[str, object], tmp_path: Path) -> None:
    path = fitted(tmp_path, **options)  # type: ignore[arg-type]
    manifest, _ = read_manifest(path)
    assert manifest.input_noise is None
    assert "noise_scale" not in {output.name for output in onnx.load(path / MODEL).graph.output}
    found = Predictor.load(path).predict(drawn(5, 6)[0].numpy())
    assert found.noise_scale is None
    assert manifest.noises is not None
    assert found.std is not None
    np.testing.assert_allclose(np.square(found.std), found.variance + np.square(manifest.noises), rtol=1e-5)


def test_intervals_that_hold_too_little_in_a_fifth_are_a_warning(tmp_path: Path) -> None:
    """The noise grows with the prediction, and is given as one number."""
    warnings = read_manifest(fitted(tmp_path, column=0, sigma_noise=0.3, count=1200))[0].warnings
    (found,) = [text for text in warnings if "fifth of the held-out examples" in text]
    assert "with the largest prediction, 120, the 95 % intervals hold" in found
    assert "the noise is one number for every input" in found


def test_each_of_several_outputs_has_its_own(tmp_path: Path) -> None:
    path = fitted(tmp_path, outputs=2)
    x, _ = drawn(500, 7, outputs=2)
    found = Predictor.load(path).predict(x.numpy())
    assert found.std is not None
    for k in range(2):
        assert np.corrcoef(np.log(found.std[:, k]), np.log(deviation(x)[:, 0].numpy()))[0, 1] > 0.9
