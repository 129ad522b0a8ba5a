"""A fit with feature scores, up to the service's answer."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from typer.testing import CliRunner

from offline import FitConfig, fit_bundle
from offline.config import FitConfig as Config
from offline.evaluation.auroc import auroc
from offline.export.standalone.file import export_standalone
from offline.export.standalone.verify import open_model, run_standalone
from offline.features.neighbours import NEIGHBOUR
from offline.features.residual import HELD
from offline.features.scores import GAUSSIAN, fit_feature_scores
from offline.job import prepare
from offline.runtime.distributed import DistributedContext
from offline.runtime.progress import silent
from probity.cli import app
from service.bundle import read_bundle
from service.inference.predictor import Predictor
from service.maths.fused_score import FusedScore
from service.maths.scores import FEATURE_SCORES, ScoreName
from tests import reference
from tests.support.small_fit import CONFIG, Batches, batches

CLASSES = 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, CLASSES)).eval()


def data(count: int, seed: int = 0) -> Batches:
    return batches(count, seed, classes=CLASSES)


def configured(score: ScoreName | str, **changes: object) -> Config:
    return CONFIG.model_copy(update={"score": score, "feature_scores": True, **changes})


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("features") / "bundle"
    return fit_bundle(network(), data(90), out, calibration_loader=data(200, seed=1), config=configured("fused"))


def test_the_service_computes_the_fused_score_of_the_fit(fused: Path) -> None:
    predictor = Predictor.load(fused)
    manifest, scoring = predictor.manifest, predictor.scoring
    assert isinstance(scoring, FusedScore)
    assert manifest.feature_scores == tuple(
        name for name in FEATURE_SCORES if name in [part.score.name for part in scoring.components]
    )
    assert manifest.feature_scores
    assert manifest.verification is not None
    assert manifest.verification.feature_scores_error is not None
    assert manifest.calibration.compared is not None
    named = {one.name for one in manifest.calibration.compared}
    assert named & set(FEATURE_SCORES) == set(GAUSSIAN)  # the others are no better, and dearer
    inputs = np.concatenate([x.numpy() for x, _ in data(30, seed=2)])
    prediction = predictor.predict(inputs)
    np.testing.assert_allclose(prediction.p_value, predictor.rule.p_value(prediction.score))
    far = predictor.predict(-20 * np.abs(inputs))
    assert auroc(prediction.score, far.score) > 0.9


def test_a_standalone_model_of_it_decides_alike(fused: Path, tmp_path: Path) -> None:
    export_standalone(fused, tmp_path / "model.onnx")
    inputs = np.concatenate([x.numpy() for x, _ in data(20, seed=3)])
    found = run_standalone(open_model((tmp_path / "model.onnx").read_bytes()), inputs)
    expected = Predictor.load(fused).predict(inputs)
    np.testing.assert_allclose(found["score"], expected.score, rtol=1e-5)
    np.testing.assert_array_equal(found["rejected"], expected.rejected)


def test_the_card_and_the_report_name_them(fused: Path) -> None:
    shown = CliRunner().invoke(app, ["inspect", str(fused)])
    assert shown.exit_code == 0, shown.output
    assert "mahalanobis" in shown.stdout
    assert "Mahalanobis distance of the" in (fused / "report.html").read_text()


@pytest.mark.parametrize("name", ["mahalanobis", "nearest_neighbours", "residual"])
def test_one_of_them_alone(name: str, tmp_path: Path) -> None:
    """Its held-out scores are those of the definition, from the training data alone."""
    model, out = network(), tmp_path / "bundle"
    assert isinstance(model, nn.Sequential)
    fit_bundle(model, data(90), out, calibration_loader=data(40, seed=1), config=configured(name))
    bundle = read_bundle(out)
    assert bundle.manifest.feature_scores == (name,)

    def features(pairs: Batches) -> np.ndarray:
        with torch.no_grad():
            found: np.ndarray = model[:-1].double()(torch.cat([x for x, _ in pairs]).double()).numpy()
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    labels = torch.cat([y for _, y in data(90)]).tolist()
    known = features(data(90))
    of = {
        "mahalanobis": lambda u: reference.class_distance(u, known, labels, 6, 0.1),
        "nearest_neighbours": lambda u: reference.neighbour_distance(u, known, NEIGHBOUR),
        "residual": lambda u: reference.residual(u, known, HELD),
    }
    expected = sorted(map(of[name], features(data(40, 1))))
    np.testing.assert_allclose(bundle.calibration.scores, expected, rtol=1e-4, atol=1e-7)


def test_a_network_without_layers_in_the_middle(tmp_path: Path) -> None:
    model, expected = nn.Sequential(nn.Linear(4, CLASSES)).eval(), "found 'middle_mahalanobis' for a network without"
    with pytest.raises(ValueError, match=expected):
        fit_bundle(model, data(60), tmp_path, calibration_loader=data(40, 1), config=configured("middle_mahalanobis"))


def test_processes_add_up_what_they_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, the second of which has the other batches: the sums are those of one."""
    job = prepare(network(), data(60), configured("fused"), torch.device("cpu"), DistributedContext(), silent)
    alone, seen = fit_feature_scores(job, 8), []
    monkeypatch.setattr(DistributedContext, "all_reduce", lambda _, tensor: seen.append(tensor.clone()))
    shards = []
    for rank in (1, 0):
        context = DistributedContext(rank, 2)
        fit_feature_scores(prepare(network(), data(60), job.config, job.device, context, silent), 8)
        shards.append(seen[:])
        seen.clear()
    monkeypatch.setattr(DistributedContext, "all_reduce", lambda _, tensor: tensor.add_(shards[0].pop(0)))
    context = DistributedContext(0, 2)
    together = fit_feature_scores(prepare(network(), data(60), job.config, job.device, context, silent), 8)
    x = torch.randn(5, 4)
    torch.testing.assert_close(together.of(job.network, x), alone.of(job.network, x))


def test_a_network_without_a_linear_head(tmp_path: Path) -> None:
    model = nn.Sequential(network(), nn.Tanh())
    with pytest.raises(ValueError, match="feature_scores: found a network that does not end in a Linear layer"):
        fit_bundle(model, data(60), tmp_path / "b", calibration_loader=data(40, 1), config=configured("fused"))


def test_what_a_config_refuses() -> None:
    with pytest.raises(ValidationError, match="found 'mahalanobis' without feature_scores"):
        FitConfig(score="mahalanobis")
    with pytest.raises(ValidationError, match=r"feature_scores: found True with .* score='energy', expected"):
        FitConfig(score="energy", feature_scores=True)
    with pytest.raises(ValidationError, match="feature_scores: found True with likelihood='regression'"):
        FitConfig(likelihood="regression", feature_scores=True)
    with pytest.raises(ValidationError, match="found 'mahalanobis' for a regression"):
        FitConfig(likelihood="regression", score="mahalanobis")
    assert FitConfig(score="auto", feature_scores=True).tunes
