"""How held-out examples turned out: written, read, and refused where it is not what the manifest says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from demur.service.bundle import BundleError, CalibrationTensors, ManifestError, Outcomes, SetScore, read_bundle
from demur.service.format.calibration_tensors import calibration_from_bytes, calibration_to_bytes
from demur.service.maths.outcomes import ClassOutcomes, RegressionOutcomes
from tests.support.bundles import Synthetic, rewrite
from tests.support.outcomes import keeping_outcomes

FILE = Path("calibration.safetensors")


@pytest.mark.parametrize("tuning", [0, 30])
def test_those_of_a_classification_come_back(classification: Synthetic, tmp_path: Path, tuning: int) -> None:
    bundle = read_bundle(keeping_outcomes(classification.path, tmp_path / "bundle", 50, tuning))
    found = bundle.calibration.outcomes
    assert isinstance(found, ClassOutcomes)
    np.testing.assert_array_equal(found.calibration.scores, bundle.calibration.scores)
    assert (len(found.calibration.predicted), len(found.set_scores)) == (50, 50)
    assert found.classes is not None
    np.testing.assert_array_equal(found.classes == found.calibration.predicted, found.calibration.correct)
    assert (found.tuning is None) == (tuning == 0)
    assert found.tuning is None or len(found.tuning) == tuning
    again = read_bundle(rewrite(bundle.path, tmp_path / "again"))
    assert again.digest == bundle.digest


@pytest.mark.parametrize("tuning", [0, 30])
def test_how_sure_they_were_comes_back_where_it_is_known(
    classification: Synthetic, tmp_path: Path, tuning: int
) -> None:
    bundle = read_bundle(keeping_outcomes(classification.path, tmp_path / "bundle", 50, tuning))
    known = bundle.calibration.outcomes
    assert isinstance(known, ClassOutcomes)
    assert known.confidences is None
    confidences = np.linspace(0.3, 1, 50)
    calibration = replace(bundle.calibration, outcomes=replace(known, confidences=confidences))
    found = calibration_from_bytes(FILE, calibration_to_bytes(calibration), bundle.manifest).outcomes
    assert isinstance(found, ClassOutcomes)
    np.testing.assert_array_equal(found.confidences, confidences)


def test_those_of_a_regression_come_back(regression: Synthetic, tmp_path: Path) -> None:
    bundle = read_bundle(keeping_outcomes(regression.path, tmp_path / "bundle", 50))
    assert isinstance(bundle.calibration.outcomes, RegressionOutcomes)
    assert bundle.calibration.outcomes.residuals.shape == (50, 2)
    assert bundle.manifest.calibration.outcomes == Outcomes(0, None)


def test_a_classification_has_a_set_score(classification: Synthetic) -> None:
    calibration = replace(classification.manifest.calibration, outcomes=Outcomes(30, None))
    with pytest.raises(ManifestError, match=r"calibration\.outcomes: found .* expected a set_score"):
        replace(classification.manifest, calibration=calibration)


WRONG: list[tuple[str, Any, str]] = [
    ("predicted", np.full(50, 3, np.int32), r"predicted: expected class numbers from 0 to 2"),
    ("predicted", np.zeros(50, np.int64), r"'predicted': found dtype int64"),
    ("tuning.predicted", np.full(30, -1, np.int32), r"tuning\.predicted: expected class numbers"),
    ("correct", np.ones(49, bool), r"'correct': found shape \(49,\), expected \(50,\)"),
    ("set_scores", np.full(50, np.nan), "found NaN"),
    ("confidences", np.full(50, 1.5), "confidences: expected probabilities, from 0 to 1"),
    ("confidences", np.full(49, 0.5), r"'confidences': found shape \(49,\), expected \(50,\)"),
    ("classes", np.full(50, 3, np.int32), r"classes: expected class numbers from 0 to 2 that agree with `correct`"),
    ("classes", np.zeros(50, np.int32), "classes: expected class numbers from 0 to 2 that agree with `correct`"),
    ("tuning.scores", np.arange(30.0)[::-1].copy(), r"tuning\.scores: expected at least one score, in ascending order"),
    ("residuals", np.zeros((50, 3)), "unexpected tensor 'residuals'"),
]


@pytest.mark.parametrize(("name", "value", "expected"), WRONG, ids=lambda one: str(one)[:20])
def test_wrong_tensors_are_refused(
    classification: Synthetic, tmp_path: Path, name: str, value: Any, expected: str
) -> None:
    bundle = read_bundle(keeping_outcomes(classification.path, tmp_path / "bundle", 50, 30))
    tensors = safetensors.numpy.load(calibration_to_bytes(bundle.calibration))
    data = safetensors.numpy.save(tensors | {name: value})
    with pytest.raises(BundleError, match=expected):
        calibration_from_bytes(FILE, data, bundle.manifest)


def test_a_negative_residual_is_refused(regression: Synthetic, tmp_path: Path) -> None:
    bundle = read_bundle(keeping_outcomes(regression.path, tmp_path / "bundle", 50))
    wrong = CalibrationTensors(bundle.calibration.scores, RegressionOutcomes(np.full((50, 2), -1.0)))
    with pytest.raises(BundleError, match="residuals: found a negative one"):
        calibration_from_bytes(FILE, calibration_to_bytes(wrong), bundle.manifest)


@pytest.mark.parametrize("score", [{"penalty": -0.1, "unpenalised": 1}, {"penalty": 0.0, "unpenalised": 0}])
def test_a_set_score_has_bounds(classification: Synthetic, tmp_path: Path, score: dict[str, Any]) -> None:
    path = keeping_outcomes(classification.path, tmp_path / "bundle", 50, 30)
    manifest = read_bundle(path).manifest
    outcomes = Outcomes(30, SetScore(**score))
    with pytest.raises(ManifestError, match="set_score"):
        rewrite(
            path,
            tmp_path / "wrong",
            manifest=replace(manifest, calibration=replace(manifest.calibration, outcomes=outcomes)),
        )
