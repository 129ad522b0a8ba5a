"""The report's table of what the bundle rejects of obviously foreign inputs."""

from demur.offline.report.page import ReportData, report_html
from demur.offline.report.words import foreign_rows
from demur.service.bundle import RejectedShare
from tests.support.report_pages import Page, report_manifest

SHARES = RejectedShare("scaled-by-10", 0.125, 100), RejectedShare("zeros", 0.0, 100)


def test_a_row_for_each_kind_says_whether_it_is_judged() -> None:
    rows = foreign_rows(report_manifest(rejection=SHARES))
    assert [(row.title, row.share.replace("\N{NO-BREAK SPACE}", " "), row.judged) for row in rows] == [
        ("Scaled by 10", "12.5 %", True),
        ("Zeros", "0 %", False),
    ]
    page = Page(report_html(ReportData(report_manifest(rejection=SHARES))))
    assert "Obviously foreign inputs" in page.text("h3")
    assert page.text("em").count("not judged") == 1
    assert "Less than half is rejected of these obviously foreign inputs: scaled by 10." in page.text("span")


def test_zeros_alone_are_nothing_to_check() -> None:
    page = Page(report_html(ReportData(report_manifest(rejection=SHARES[1:]))))
    assert "At least half is rejected of every kind" in page.text("span")


def test_nothing_is_shown_where_nothing_was_measured() -> None:
    assert foreign_rows(report_manifest(rejection=None)) == []
    assert b"bviously foreign inputs" not in report_html(ReportData(report_manifest(rejection=None)))
