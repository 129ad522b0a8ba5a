"""A fit with another score than the default one, up to the service's answer."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import demur.offline.laplace.scoring
from demur.cli import app
from demur.offline import FitConfig, fit_bundle
from demur.offline.config import OptionError
from demur.offline.export.standalone.file import export_standalone
from demur.offline.export.standalone.verify import open_model, run_standalone
from demur.offline.laplace.scoring import compare
from demur.service.bundle import BundleError, ManifestError, read_bundle, reseal_manifest, seal_bundle
from demur.service.codec.answers import predictions_json
from demur.service.inference.graph import GraphOutputs
from demur.service.inference.prediction import Predictive
from demur.service.inference.predictor import Predictor
from demur.service.maths.fused_score import FusedScore
from demur.service.maths.scores import CLASSIFICATION_SCORES, FEATURE_SCORES
from tests.support.small_fit import CONFIG, batches, network
from tests.support.tiers import quick_among

pytestmark = pytest.mark.usefixtures("short_fits")

FAR = 40 * np.ones((1, 4), np.float32)


@pytest.fixture(scope="module")
def fused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("fused") / "bundle", "fused")


def fitted(out: Path, score: str, **changes: object) -> Path:
    config = CONFIG.model_copy(update={"score": score, **changes})
    return fit_bundle(network(), batches(60), out, calibration_loader=batches(120, seed=1), config=config)


def test_the_service_computes_the_fused_score_of_the_fit(fused: Path) -> None:
    predictor = Predictor.load(fused)
    assert isinstance(predictor.decision.predictive.score, FusedScore)
    inputs = np.concatenate([x.numpy() for x, _ in batches(30, seed=2)])
    prediction = predictor.predict(inputs)
    manifest, features = predictor.manifest, predictor.graph.outputs(inputs).features
    outputs = GraphOutputs(prediction.mean, prediction.variance, features)
    again = Predictive.of(manifest, predictor.decision.predictive.score).undecided(outputs)
    np.testing.assert_array_equal(prediction.score, again.score)
    assert prediction.leading is not None
    assert prediction.rows(3, 7).leading is not None
    np.testing.assert_allclose(prediction.p_value, predictor.decision.pooled.p_value(prediction.score))
    compared = predictor.manifest.calibration.compared
    assert compared is not None
    assert [one.name for one in compared] == [*CLASSIFICATION_SCORES, *FEATURE_SCORES, "fused"]


def test_the_answer_names_the_largest_part(fused: Path) -> None:
    predictor = Predictor.load(fused, false_reject_rate=0.5)
    inputs = np.concatenate([x.numpy() for x, _ in batches(30, seed=2)])
    answers = predictions_json(predictor.predict(inputs), predictor.decision)
    reasons = [answer["reason"] for answer in answers if answer["rejected"]]
    assert reasons
    titles = "|".join(score.title for score in (CLASSIFICATION_SCORES | FEATURE_SCORES).values())
    pattern = rf"The fused score \(mainly its ({titles})\), [\d.e+-]+, is higher than"
    assert all(re.match(pattern, reason) for reason in reasons)


def test_the_card_and_the_report_show_the_parts(fused: Path) -> None:
    shown = CliRunner().invoke(app, ["inspect", str(fused)])
    assert shown.exit_code == 0, shown.output
    calibration = read_bundle(fused).manifest.calibration
    assert calibration.parts is not None
    assert f"reject above fused {calibration.threshold:.4g}" in shown.stdout
    assert calibration.parts[0].name in shown.stdout
    assert "AUROC against the inputs that chose it" in shown.stdout
    report = (fused / "report.html").read_text()
    assert "fused score:" in report
    assert '<section id="score">' in report


def test_a_standalone_model_of_it_decides_alike(fused: Path, tmp_path: Path) -> None:
    export_standalone(fused, tmp_path / "model.onnx")
    inputs = np.concatenate([batches(20, seed=3)[0][0].numpy(), FAR])
    found = run_standalone(open_model((tmp_path / "model.onnx").read_bytes()), inputs)
    expected = Predictor.load(fused).predict(inputs)
    np.testing.assert_allclose(found["score"], expected.score, rtol=1e-5)
    np.testing.assert_array_equal(found["rejected"], expected.rejected)


@pytest.mark.parametrize("score", quick_among(["energy", "auto"], {"auto"}))
def test_other_scores(tmp_path: Path, score: str) -> None:
    predictor = Predictor.load(fitted(tmp_path / "bundle", score))
    calibration = predictor.manifest.calibration
    assert score == "auto" or (calibration.score, calibration.compared) == ("energy", None)
    assert predictor.predict(FAR).rejected.shape == (1,)


def test_foreign_data_take_the_place_of_synthetic_shifts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each half of them judges weights that were fitted to the other one, so that two kinds were compared."""
    foreign = [(x + 3, y) for x, y in batches(41, seed=5)]
    seen: list[list[str]] = []

    def watching(config: FitConfig, ordinary: Any, others: Any) -> Any:
        seen.append([f"{name} {len(outputs.mean)}" for name, outputs in others.items()])
        return compare(config, ordinary, others)

    monkeypatch.setattr(demur.offline.laplace.scoring, "compare", watching)
    config = CONFIG.model_copy(update={"score": "fused"})
    held_out = batches(120, seed=1)
    out = fit_bundle(
        network(), batches(60), tmp_path / "b", calibration_loader=held_out, foreign_loader=foreign, config=config
    )
    assert seen == [["even-foreign 21", "odd-foreign 20"]]
    predictor = Predictor.load(out)
    usual, other = (np.concatenate([x.numpy() for x, _ in data]) for data in (batches(30, seed=2), foreign))
    assert np.median(predictor.predict(other).p_value) < np.median(predictor.predict(usual).p_value)


def test_foreign_data_that_would_change_nothing_or_do_not_fit_are_refused(tmp_path: Path) -> None:
    wide = batches(20, features=7)
    for score, foreign, message in (
        ("default", batches(20), "found foreign data with score='default', which they would not change"),
        ("auto", wide, r"foreign_loader: found inputs of shape \(7,\) and torch.float32, expected \(4,\)"),
    ):
        config = CONFIG.model_copy(update={"score": score})
        with pytest.raises(ValueError, match=message):
            fit_bundle(
                network(),
                batches(),
                tmp_path / "b",
                calibration_loader=batches(120),
                foreign_loader=foreign,
                config=config,
            )


def test_the_tensors_must_be_those_of_the_manifest(fused: Path, tmp_path: Path) -> None:
    bundle = read_bundle(fused)
    calibration = bundle.manifest.calibration
    assert calibration.parts is not None
    parts = (bundle.posterior, bundle.subnetwork_indices, bundle.calibration)
    other = replace(calibration, score="energy", parts=None, compared=None)
    with pytest.raises(ValueError, match="scoring: found 'fused', expected 'energy'"):
        seal_bundle(tmp_path, replace(bundle.manifest, calibration=other), bundle.model, *parts)
    with pytest.raises(ManifestError, match="weights of sum 1"):
        replace(calibration, parts=(replace(calibration.parts[0], weight=0.5),))
    with pytest.raises(
        ManifestError, match=r"calibration\.parts: found None, expected what 'fused' or 'surprise' is made of"
    ):
        replace(calibration, parts=None)
    first, *rest = calibration.parts
    taken = {part.name for part in calibration.parts}
    other_name = next(score.name for name, score in CLASSIFICATION_SCORES.items() if name not in taken)
    renamed = replace(calibration, parts=(replace(first, name=other_name), *rest))
    sealed = seal_bundle(tmp_path, bundle.manifest, bundle.model, *parts)
    reseal_manifest(tmp_path, replace(sealed, calibration=renamed))
    with pytest.raises(BundleError, match=rf"tensor 'part\.{other_name}\.values' is missing"):
        read_bundle(tmp_path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"values": np.array([2.0, 1.0])}, "values: found something else, expected 1 to 200 numbers"),
        ({"values": np.arange(201.0), "surprise": np.zeros(201)}, "values: found something else, expected 1 to 200"),
        ({"surprise": np.array([-1.0, 2.0])}, "surprise: expected numbers of at least 0"),
        ({"surprise": np.array([2.0, 1.0])}, "surprise: expected numbers of at least 0, in ascending order"),
        ({"surprise": np.array([1.0, 2.0, 3.0])}, r"found shape \(3,\), expected \(2,\)"),
        ({"values": np.array([1.0, np.inf])}, "found NaN or infinity"),
    ],
    ids=str,
)
def test_a_distribution_that_is_none(fused: Path, tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    bundle = read_bundle(fused)
    scoring = bundle.calibration.scoring
    assert isinstance(scoring, FusedScore)
    first, *rest = scoring.components
    sound = replace(first.distribution, values=np.array([1.0, 2.0]), surprise=np.array([0.0, 2.0]))
    wrong = FusedScore((replace(first, distribution=replace(sound, **changes)), *rest))
    calibration = replace(bundle.calibration, scoring=wrong)
    seal_bundle(tmp_path, bundle.manifest, bundle.model, bundle.posterior, bundle.subnetwork_indices, calibration)
    with pytest.raises(BundleError, match=problem):
        read_bundle(tmp_path)


def test_scores_that_a_config_refuses() -> None:
    with pytest.raises(OptionError, match="found 'energy' for a regression, expected one of default, epistemic_std"):
        FitConfig(likelihood="regression", score="energy")
    with pytest.raises(OptionError, match="found 'epistemic_std' for a classification"):
        FitConfig(score="epistemic_std")
    assert FitConfig(score="auto", prior_precision=1.0, selection="random").tunes
