"""The report's table of the scores that a fit compared."""

from dataclasses import replace
from typing import Any

from demur.offline.report.compared import score_rows
from demur.offline.report.page import ReportData, report_html
from demur.service.bundle import ComparedScore, Manifest, ScorePart
from tests.support.report_pages import Page, report_manifest

COMPARED = (
    ComparedScore("predictive_entropy", 0.75, chosen=False),
    ComparedScore("energy", 0.8125, chosen=False),
    ComparedScore("fused", 0.90625, chosen=True),
)
PARTS = (ScorePart("energy", 0.625, 1.0), ScorePart("max_logit", 0.375, 1.0))


def manifest(**changes: Any) -> Manifest:
    plain = report_manifest()
    return replace(plain, calibration=replace(plain.calibration, **changes))


def section(given: Manifest) -> Page | None:
    """The section alone, None where the page has none."""
    _, mark, rest = report_html(ReportData(given)).partition(b'<section id="score">')
    return Page(mark + rest.partition(b"</section>")[0] + b"</section>") if mark else None


def test_the_best_score_comes_first_and_the_chosen_one_is_marked() -> None:
    given = manifest(score="fused", parts=PARTS, compared=COMPARED)
    assert [(row.title, row.auroc, row.chosen) for row in score_rows(given)] == [
        ("Fused score", "0.9062", True),
        ("Energy", "0.8125", False),
        ("Predictive entropy", "0.7500", False),
    ]
    page = section(given)
    assert page is not None
    assert [text for tag, text in page.texts if tag == "em"] == ["chosen"]
    assert len([row for row in page.all("tr") if row.get("class") == "chosen"]) == 1
    assert "Weight in the fused score" in page.text("th")
    assert "62.5 %" in page.text("td")


def test_a_single_score_has_no_weights() -> None:
    single = (COMPARED[0], replace(COMPARED[1], chosen=True))
    page = section(manifest(score="energy", compared=single))
    assert page is not None
    assert "Weight" not in page.text()
    assert page.text("em") == "chosen"


def test_nothing_is_shown_where_nothing_was_compared() -> None:
    assert score_rows(manifest()) == []
    assert section(manifest()) is None
