"""The report's table of certified accuracies: what the service would accept, and what is missing."""

from pathlib import Path

import numpy as np
import pytest

from demur.offline.report.page import ReportData, report_html
from demur.offline.report.words import ACCURACIES, certified_rows
from demur.service.bundle import read_bundle
from demur.service.maths.certified import certify
from demur.service.maths.outcomes import ClassOutcomes, RegressionOutcomes, Verdicts
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.outcomes import keeping_outcomes


def verdicts(count: int, seed: int) -> Verdicts:
    """An example of score s is wrong with probability s / 4."""
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.random(count))
    return Verdicts(scores, np.zeros(count, np.int32), rng.random(count) > scores / 4)


def test_each_row_is_what_would_be_accepted() -> None:
    outcomes = ClassOutcomes(verdicts(1000, 0), np.zeros(1000), verdicts(1000, 1))
    assert outcomes.tuning is not None
    rows = dict(zip(ACCURACIES, certified_rows(outcomes), strict=True))
    found = certify(outcomes.calibration, outcomes.tuning, 0.9, 0.95)
    accepted, errors, threshold = rows[0.9].cells
    assert float(accepted.split()[0]) == pytest.approx(found.accepted / 10, rel=0.05)
    assert errors == f"{found.errors} of {found.accepted}"
    assert float(threshold) == pytest.approx(found.threshold, rel=0.01)
    assert rows[0.9].refused is None
    assert rows[0.999].refused == "too many errors" or "more examples" in str(rows[0.999].refused)


def test_nothing_is_shown_where_nothing_can_be_certified() -> None:
    known = verdicts(100, 0)
    assert certified_rows(None) == []
    assert certified_rows(RegressionOutcomes(np.ones((9, 1)))) == []
    assert certified_rows(ClassOutcomes(known, np.zeros(100), None)) == []


def test_the_page_has_the_table(tmp_path: Path) -> None:
    source = write_linear(tmp_path / "source", outputs=3, spec=FEATURE_SPEC).path
    bundle = read_bundle(keeping_outcomes(source, tmp_path / "bundle", 400, 400))
    with_table = report_html(ReportData(bundle.manifest, outcomes=bundle.calibration.outcomes)).decode()
    assert with_table.count('<th scope="row">') >= len(ACCURACIES)
    assert "not certified, " in with_table
    assert '<section id="certified">' not in report_html(ReportData(bundle.manifest)).decode()
