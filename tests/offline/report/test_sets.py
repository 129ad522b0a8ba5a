"""The report's table of what prediction sets hold of each class."""

from pathlib import Path

import numpy as np

from demur.offline.report.page import ReportData, report_html
from demur.offline.report.words import set_rows
from demur.service.bundle import read_bundle
from demur.service.maths.outcomes import ClassOutcomes, RegressionOutcomes, Verdicts
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.outcomes import keeping_outcomes


def test_the_classes_that_sets_hold_least_often_go_first(tmp_path: Path) -> None:
    manifest = read_bundle(write_linear(tmp_path / "source", outputs=3, spec=FEATURE_SPEC).path).manifest
    classes = np.repeat([0, 1], [400, 18]).astype(np.int32)
    scores = np.concatenate([np.linspace(0, 0.5, 400), np.full(18, 0.9)])
    predicted = Verdicts(
        np.arange(418.0), np.append(np.zeros(417, np.int32), np.int32(1)), np.append(classes[:-1] == 0, True)
    )
    outcomes = ClassOutcomes(predicted, scores, None, classes=classes)
    few = "in every set: too few examples"
    assert set_rows(manifest, outcomes) == [
        ("class 1", "1 of 18", few),
        ("class 0", "400 of 400", "95 %"),
        ("class 2", "0 of 0", few),
    ]
    assert set_rows(manifest, None) == set_rows(manifest, RegressionOutcomes(np.ones((9, 1)))) == []
    assert set_rows(manifest, ClassOutcomes(predicted, scores, None)) == []


def test_the_page_has_the_table(tmp_path: Path) -> None:
    source = write_linear(tmp_path / "source", outputs=3, spec=FEATURE_SPEC).path
    bundle = read_bundle(keeping_outcomes(source, tmp_path / "bundle", 400, 400))
    page = report_html(ReportData(bundle.manifest, outcomes=bundle.calibration.outcomes)).decode()
    assert "With DEMUR_SETS_BY_CLASS" in page
    assert '<section id="sets">' not in report_html(ReportData(bundle.manifest)).decode()
