"""The report's section on added weights: their layers, their prior, and the shares of the budget that were tried."""

from dataclasses import replace

import pytest

from offline.report.added import added_rows, share_rows
from offline.report.page import ReportData, report_html
from service.bundle import Manifest
from tests.support.added import ADDED, with_added_weights
from tests.support.report_pages import Page, report_manifest


def manifest(task: str = "classification") -> Manifest:
    return with_added_weights(report_manifest(task), map_temperature=1.5)


def section(given: Manifest, name: str = "added") -> Page | None:
    """The section alone, None where the page has none."""
    _, mark, rest = report_html(ReportData(given)).partition(f'<section id="{name}">'.encode())
    return Page(mark + rest.partition(b"</section>")[0] + b"</section>") if mark else None


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_it_says_what_they_read_and_why_their_prior_is_what_it_is(task: str) -> None:
    page = section(manifest(task))
    assert page is not None
    assert page.text("h2") == "Added weights"
    assert ADDED.explanation in page.text("p")
    for expected in ("body.3, head", "the network's inputs, body.1, head", "512", "2.5"):
        assert expected in page.text("bdi")


def test_the_shares_are_a_table_with_one_chosen() -> None:
    page = section(manifest())
    assert page is not None
    assert [text for tag, text in page.texts if tag == "em"] == ["chosen"]
    assert len([row for row in page.all("tr") if row.get("class") == "chosen"]) == 1
    assert [(row.share.split()[0], row.chosen) for row in share_rows(manifest())] == [
        ("0", False),
        ("50", True),
        ("100", False),
    ]
    for cell in ("10,000", "1.25", "−0.250", "−1.750", "–"):  # noqa: RUF001
        assert cell in page.text("td")


def test_layers_are_escaped() -> None:
    added = replace(ADDED, layers=("<script>",), explanation="<b>")
    page = section(replace(manifest(), added_weights=added))
    assert page is not None
    assert "<script>" in page.text("bdi")
    assert not page.all("script")


def test_both_temperatures_are_shown() -> None:
    page = section(manifest(), "posterior")
    assert page is not None
    assert "Temperature of the plain network" in page.text("th")
    assert "1.5" in page.text("bdi")


def test_nothing_is_shown_without_them() -> None:
    assert added_rows(report_manifest()) == {}
    assert share_rows(report_manifest()) == []
    assert section(report_manifest()) is None
