"""The report's section on added weights: their layers, their variance, and what they cost."""

from dataclasses import replace

import pytest

from demur.offline.report.page import ReportData, report_html
from demur.offline.report.words import added_rows, checks
from demur.service.bundle import Gate, Manifest
from tests.support.added import ADDED, with_added_weights
from tests.support.report_pages import Page, report_manifest


def manifest(task: str = "classification") -> Manifest:
    return with_added_weights(report_manifest(task), map_temperature=1.5)


def section(given: Manifest, name: str = "added") -> Page | None:
    """The section alone, None where the page has none."""
    _, mark, rest = report_html(ReportData(given)).partition(f'<section id="{name}">'.encode())
    return Page(mark + rest.partition(b"</section>")[0] + b"</section>") if mark else None


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_it_says_what_they_read_and_what_they_cost(task: str) -> None:
    page = section(manifest(task))
    assert page is not None
    assert page.text("h2") == "Added weights"
    assert ADDED.explanation in page.text("p")
    for expected in (
        "body.3, head",
        "the network's inputs, body.1, head",
        "256",
        "2.5",
        "0.003 nats, standard error 0.0015",
    ):
        assert expected in page.text("bdi")


def test_behind_the_gate_it_says_how_large_variances_are() -> None:
    gate = Gate(subnetwork_scale=0.5, threshold=0.625)
    page = section(replace(manifest(), added_weights=replace(ADDED, gate=gate)))
    assert page is not None
    assert "0.625" in page.text("bdi")
    assert "2.5" not in page.text("bdi")


@pytest.mark.parametrize(("served", "fine"), [(-0.204, True), (-0.206, False)])
def test_what_they_cost_is_compared_with_their_budget(served: float, fine: bool) -> None:
    name = "calibration_log_likelihood"
    given = replace(manifest(), metrics={name: served, f"{name}_map": -0.2})
    (found,) = [check for check in checks(given) if "; the budget was" in check.text]
    assert found.fine is fine
    assert "beside the temperature alone; the budget was 0.005," in found.text
    given = replace(given, metrics={**given.metrics, f"{name}_plain": -0.19})
    (found,) = [check for check in checks(given) if "; the budget was" in check.text]
    assert not found.fine
    assert "beside the plain network" in found.text


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
    assert section(report_manifest()) is None
