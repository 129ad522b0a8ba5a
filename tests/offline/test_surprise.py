"""Fits whose score is made of the distance: the default ones, up to the service's answer."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from demur.cli import app
from demur.offline import FitConfig, fit_bundle
from demur.offline.config import OptionError
from demur.offline.data.likelihood import Classification
from demur.offline.export.standalone.file import export_standalone
from demur.offline.export.standalone.verify import open_model, run_standalone
from demur.offline.laplace.scoring import HeldOutOutputs, choose_score
from demur.service.bundle import read_manifest
from demur.service.codec.answers import predictions_json
from demur.service.inference.graph import GraphOutputs
from demur.service.inference.policy import Policy
from demur.service.inference.prediction import Predictive
from demur.service.inference.predictor import Predictor
from demur.service.maths.surprise import LargestSurprise
from tests.support.small_fit import CONFIG, Batches, batches, network

pytestmark = pytest.mark.usefixtures("short_fits")

FAR = 40 * np.ones((1, 4), np.float32)


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("default") / "bundle")


def fitted(out: Path, model: nn.Module | None = None, held_out: Batches | None = None, **changes: object) -> Path:
    config = CONFIG.model_copy(update=changes)
    held_out = held_out or batches(120, seed=1)
    return fit_bundle(model or network(), batches(60), out, calibration_loader=held_out, config=config)


def test_the_default_is_the_largest_surprise(default: Path) -> None:
    predictor = Predictor.load(default)
    scoring = predictor.decision.predictive.score
    assert isinstance(scoring, LargestSurprise)
    assert [part.score.name for part in scoring.components] == ["predictive_entropy", "distance"]
    assert [part.least for part in scoring.components] == [0.0, pytest.approx(np.log(20))]
    assert [part.end for part in scoring.components] == [None, 1.0]
    usual = predictor.predict(np.concatenate([x.numpy() for x, _ in batches(200, seed=2)]))
    assert usual.rejected.mean() < 0.25
    far = predictor.predict(FAR)
    assert far.rejected.all()
    assert far.leading is not None
    assert far.leading.tolist() == [1]


def test_the_service_computes_the_score_of_the_fit(default: Path) -> None:
    predictor = Predictor.load(default)
    inputs = np.concatenate([x.numpy() for x, _ in batches(30, seed=2)])
    prediction = predictor.predict(inputs)
    manifest, features = predictor.manifest, predictor.graph.outputs(inputs).features
    outputs = GraphOutputs(prediction.mean, prediction.variance, features)
    again = Predictive.of(manifest, predictor.decision.predictive.score).undecided(outputs)
    np.testing.assert_array_equal(prediction.score, again.score)
    assert prediction.rows(3, 7).leading is not None
    np.testing.assert_allclose(prediction.p_value, predictor.decision.pooled.p_value(prediction.score))


def test_the_answer_names_the_part_that_it_is(default: Path) -> None:
    predictor = Predictor.load(default, policy=Policy(false_reject_rate=0.5))
    inputs = np.concatenate([*(x.numpy() for x, _ in batches(30, seed=2)), FAR])
    answers = predictions_json(predictor.predict(inputs), predictor.decision)
    reasons = [answer["reason"] for answer in answers if answer["rejected"]]
    pattern = r"The surprise \(by its (predictive entropy|distance from the training data)\), [\d.e+-]+, is higher than"
    found = [re.match(pattern, reason) for reason in reasons]
    assert {match.group(1) for match in found if match} == {"predictive entropy", "distance from the training data"}
    assert all(found)


def test_the_card_and_the_report_show_its_parts(default: Path) -> None:
    shown = CliRunner().invoke(app, ["inspect", str(default)])
    assert shown.exit_code == 0, shown.output
    assert "the largest of predictive_entropy, distance beyond its 95 % quantile" in shown.stdout
    report = (default / "report.html").read_text()
    assert "largest surprise: predictive entropy, distance from the training data beyond the 95" in report


def test_a_standalone_model_of_it_decides_alike(default: Path, tmp_path: Path) -> None:
    export_standalone(default, tmp_path / "model.onnx")
    inputs = np.concatenate([batches(20, seed=3)[0][0].numpy(), FAR])
    found = run_standalone(open_model((tmp_path / "model.onnx").read_bytes()), inputs)
    expected = Predictor.load(default).predict(inputs)
    np.testing.assert_allclose(found["score"], expected.score, rtol=1e-5)
    np.testing.assert_array_equal(found["rejected"], expected.rejected)


@pytest.mark.parametrize("held_out", [pytest.param(20, marks=pytest.mark.slow), 40])
def test_few_held_out_examples(tmp_path: Path, held_out: int) -> None:
    predictor = Predictor.load(fitted(tmp_path / "bundle", held_out=batches(held_out, seed=1)))
    assert isinstance(predictor.decision.predictive.score, LargestSurprise)
    largest = np.full((1, 4), np.finfo(np.float32).max / 1e6, np.float32)
    assert np.isfinite(predictor.predict(np.concatenate([FAR, largest])).score).all()


@pytest.mark.usefixtures("without_export")
@pytest.mark.parametrize("score", ["surprise", "distance", "predictive_entropy"])
def test_a_named_score(tmp_path: Path, score: str) -> None:
    calibration = read_manifest(fitted(tmp_path / "bundle", score=score))[0].calibration
    assert calibration.score == score
    assert (calibration.parts is not None) == (score == "surprise")


@pytest.mark.parametrize(("added", "score"), [(True, "distance"), (False, "epistemic_std")])
def test_a_regression_by_default(tmp_path: Path, added: bool, score: str) -> None:
    def numbers(data: Batches) -> list[tuple[Tensor, Tensor]]:
        return [(x, torch.stack([y, y], dim=1).float() + x[:, :2]) for x, y in data]

    config = CONFIG.model_copy(update={"likelihood": "regression", "added_weights": added})
    train, held_out = numbers(batches(60)), numbers(batches(120, seed=1))
    predictor = Predictor.load(
        fit_bundle(network(), train, tmp_path / "bundle", calibration_loader=held_out, config=config)
    )
    assert predictor.decision.predictive.score.name == score
    assert np.isfinite(predictor.predict(FAR).score).all()


@pytest.mark.usefixtures("without_export")
def test_the_entropy_without_added_weights(tmp_path: Path) -> None:
    manifest = read_manifest(fitted(tmp_path / "bundle", added_weights=False))[0]
    assert manifest.calibration.score == "predictive_entropy"


class Bare(nn.Module):
    """Without a layer that added weights could read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


@pytest.mark.usefixtures("without_export")
def test_a_network_without_a_distance(tmp_path: Path) -> None:
    manifest = read_manifest(fitted(tmp_path / "bundle", Bare()))[0]
    assert manifest.calibration.score == "predictive_entropy"
    assert any(warning.startswith("no weights were added") for warning in manifest.warnings)
    for score in ("surprise", "distance"):
        with pytest.raises(ValueError, match=f"score: found '{score}' for a network without a layer that added"):
            fitted(tmp_path / score, Bare(), score=score)


def test_a_surprise_by_name_needs_scores_that_differ() -> None:
    """By default, the entropy then takes its place."""
    tuned = HeldOutOutputs(np.zeros((9, 3)), np.ones((9, 3)), {"distance": np.zeros(9, np.float32)})
    assert choose_score("default", Classification(3), tuned) is None
    with pytest.raises(ValueError, match="score='surprise': found neither entropies nor distances that differ"):
        choose_score("surprise", Classification(3), tuned)


def test_configs_that_are_refused() -> None:
    with pytest.raises(OptionError, match="found 'surprise' for a regression, expected one of default, epist"):
        FitConfig(likelihood="regression", score="surprise")
    for score in ("surprise", "distance"):
        with pytest.raises(OptionError, match=f"found '{score}' without added_weights"):
            FitConfig(**{"score": score, "added_weights": False})  # type: ignore[arg-type]
    assert FitConfig(prior_precision=1.0, selection="random", temperature=1.0).tunes
