"""The report's table of what the uncertainty buys and costs."""

import dataclasses

import pytest

from demur.offline.report.page import ReportData, report_html
from demur.offline.report.words import Bought, bought_rows
from demur.service.bundle import RejectedShare
from tests.support.report_pages import Page, report_manifest

METRICS = {
    f"calibration_{name}{step}": value
    for name, values in (("log_likelihood", (-0.5, -0.25, -0.125)), ("error", (0.1, 0.05, 0.025)))
    for step, value in zip(("_plain", "_map", ""), values, strict=True)
}


def test_each_step_of_a_classification() -> None:
    rejection = (RejectedShare("noise", 0.5, 9), RejectedShare("scaled-by-10", 1.0, 9), RejectedShare("zeros", 0.0, 9))
    manifest = dataclasses.replace(report_manifest(), metrics=METRICS, rejection=rejection)
    expected = [
        Bought("plain network", "−0.500", "0.100", "–"),  # noqa: RUF001
        Bought("temperature alone", "−0.250", "0.050", "–"),  # noqa: RUF001
        Bought("as served", "−0.125", "0.025", "75\N{NO-BREAK SPACE}%"),  # noqa: RUF001
    ]
    assert bought_rows(manifest) == expected
    page = Page(report_html(ReportData(manifest)))
    assert "−0.1250.02575" in page.text("td").replace(" ", "")  # noqa: RUF001


@pytest.mark.parametrize("missing", METRICS)
def test_a_step_that_was_not_measured(missing: str) -> None:
    metrics = {name: value for name, value in METRICS.items() if name != missing}
    rows = bought_rows(dataclasses.replace(report_manifest(), metrics=metrics))
    assert (rows == []) == ("likelihood" in missing)


def test_a_regression_has_no_calibration_error() -> None:
    metrics = {name: value for name, value in METRICS.items() if "likelihood" in name and "plain" not in name}
    rows = bought_rows(dataclasses.replace(report_manifest("regression"), metrics=metrics))
    assert [(row.title, row.calibration_error) for row in rows] == [("noise alone", "–"), ("as served", "–")]  # noqa: RUF001
