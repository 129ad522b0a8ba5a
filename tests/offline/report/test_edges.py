"""The report of odd bundles: what it judges, does without, refuses, and never lets a name do."""

import dataclasses
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from demur.offline.report.page import ReportData, report_html
from demur.offline.report.style import MAX_POINTS, thinned
from demur.offline.report.words import number, parameter_rows, percent
from demur.service.bundle import (
    Manifest,
    ParameterSlice,
    Posterior,
    Prior,
    RejectedShare,
    Selection,
    Verification,
)
from demur.service.format.text import is_segment
from tests.support.report_pages import SIGMA, Page, S, bare, make_data, report_manifest, titles

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;{{ 7 * 7 }}$x_"


# --------------------------------------------------------------------------- judges


def verdicts(data: ReportData) -> list[str]:
    return [text for tag, text in Page(report_html(data)).texts if tag == "b"]


def test_a_sound_bundle_is_fine() -> None:
    assert set(verdicts(bare(verification=report_manifest().verification))) == {"Fine"}


@pytest.mark.parametrize(
    "changes",
    [
        {"verification": None},
        {"verification": Verification(16, 1e-4, 1e-7, 2e-3, 3e-7)},
        {"posterior": Posterior("cholesky", S, 1e-6)},
        {"warnings": ("odd",)},
        {"rejection": (RejectedShare("noise", 0.49, 100),)},
        {"metrics": {"calibration_coverage_95": 0.85}},
        {"metrics": {"calibration_coverage_95": 1.0}},
        {"prior": Prior("budget", 1.0, 1.0, 0.01), "metrics": dict(report_manifest().metrics)},
    ],
)
def test_what_is_not_as_it_should_be_is_to_be_checked(changes: dict[str, Any]) -> None:
    assert verdicts(bare(**{"verification": report_manifest().verification} | changes)).count("Check") == 1


# --------------------------------------------------------------------------- numbers and small screens


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.86667, "0.8667"),
        (-0.25, "\N{MINUS SIGN}0.25"),
        (1234.5, "1234"),
        (9999.7, "10,000"),
        (12_000.0, "12,000"),
        (-123_456.0, "\N{MINUS SIGN}123,500"),
        (3.2e9, "3.2 × 10⁹"),  # noqa: RUF001
        (0.0001, "0.0001"),
        (5.012e-6, "5.012 × 10⁻⁶"),  # noqa: RUF001
        (-1e-10, "\N{MINUS SIGN}1 × 10⁻¹⁰"),  # noqa: RUF001
        (math.inf, "inf"),
    ],
)
def test_numbers_are_written_as_people_write_them(value: float, text: str) -> None:
    assert number(value).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.5, "50"), (0.99949, "99.9"), (0.9996, "99.96"), (0.999999, "99.99"), (1.0, "100"), (0.0, "0")],
)
def test_all_but_a_few_are_not_all(share: float, text: str) -> None:
    assert percent(share) == f"{text}\N{NO-BREAK SPACE}%"


@pytest.mark.parametrize("scale", [1e-9, 1.0, 3e7])
def test_no_number_of_the_page_looks_like_a_programs(scale: float) -> None:
    data = make_data("regression")
    prior = dataclasses.replace(data.manifest.prior, precision=1.3 * scale, used=0.7 * scale)
    manifest = dataclasses.replace(data.manifest, prior=prior, sigma_noise=SIGMA * scale)
    page = Page(report_html(dataclasses.replace(data, manifest=manifest)))
    words = [text for tag, text in page.texts if tag in ("td", "bdi", "dd", "span")]
    assert not [text for text in words if re.search(r"\de[-+]\d", text)]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_nothing_is_cut_off_on_a_telephone(tmp_path: Path) -> None:
    """A script in a copy of the page says which elements reach beyond a screen of 390 pixels, or break "Check"."""
    page = report_html(make_data()).decode()
    page = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page)
    script = """<script>
        const wide = [...document.querySelectorAll("td, th, b, p, li, h1, img")].filter(
            e => e.getBoundingClientRect().right > 390 || e.getClientRects().length > 1 && e.tagName == "B");
        parent.postMessage("beyond: " + wide.map(e => e.tagName + " " + e.textContent.trim()).join("; "), "*");
    </script>"""
    (tmp_path / "page.html").write_text(page.replace("</body>", script + "</body>"))
    frame = '<iframe src="page.html" style="width:390px;height:4000px;border:0"></iframe>'
    hear = "<script>onmessage = event => document.title = event.data</script>"  # a window is never so narrow
    (tmp_path / "frame.html").write_text(f"<title></title><body style='margin:0'>{hear}{frame}</body>")
    found = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--window-size=1000,4000", f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=5000", "--dump-dom", (tmp_path / "frame.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    (title,) = re.findall(r"<title>(.*?)</title>", found)
    assert title == "beyond: "


# --------------------------------------------------------------------------- absent parts


def test_a_manifest_alone_makes_a_page_without_figures() -> None:
    page = Page(report_html(bare()))
    assert not page.all("img")
    text = page.text()
    assert "What uncertainty buys and costs" not in text
    assert "given by the user" in text
    assert not {"Candidates", "Libraries", "Verification", "Metrics", "Warnings"} & titles(page)


def test_scores_alone_make_a_histogram() -> None:
    data = dataclasses.replace(bare(), scores=np.linspace(0, 1, 30))
    assert len(Page(report_html(data)).all("img")) == 1


@pytest.mark.parametrize(("task", "threshold"), [("classification", math.inf), ("regression", 0.0)])
def test_one_example_and_extreme_thresholds(task: Any, threshold: float) -> None:
    calibration = dataclasses.replace(report_manifest(task).calibration, threshold=threshold, examples=1)
    data = make_data(task, n=1, manifest=report_manifest(task, calibration=calibration))
    assert Page(report_html(data)).all("img")


@pytest.mark.parametrize("scale", [1e-12, 1e25])
def test_units_may_be_of_any_size(scale: float) -> None:
    data = make_data("regression")
    assert data.mean is not None
    assert data.variance is not None
    manifest = dataclasses.replace(data.manifest, sigma_noise=SIGMA * scale)
    scaled = dataclasses.replace(
        data,
        manifest=manifest,
        mean=scale * data.mean,
        variance=scale**2 * data.variance,
        targets=scale * np.asarray(data.targets),
    )
    assert len(Page(report_html(scaled)).all("img")) == 4


def test_long_runs_of_parameters_without_a_chosen_weight_become_one_row() -> None:
    empty = [ParameterSlice(f"body.{i}", (2, 2), 4 * i, 0) for i in range(9)]
    head, tail = ParameterSlice("head", (4,), 36, S), ParameterSlice("tail", (), 40, 0)
    selection = Selection("random", {}, 0, None, (*empty, head, tail))
    rows = parameter_rows(report_manifest(selection=selection))
    assert [row.name for row in rows] == ["body.0 … body.8", "head", "tail"]
    assert [row.shape for row in rows] == ["9 parameters", "4", "scalar"]


@given(st.integers(0, 5 * MAX_POINTS))
def test_thinning_keeps_both_ends(count: int) -> None:
    found = thinned(count)
    assert len(found) <= MAX_POINTS
    assert found.tolist() == sorted(set(found.tolist()))
    assert not count or (found[0], found[-1]) == (0, count - 1)


# --------------------------------------------------------------------------- refuses


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": None}, "mean, variance, targets: found 2 of them"),
        ({"variance": np.ones((120, 2))}, r"variance: found shape \(120, 2\), expected \(120, 3\)"),
        ({"targets": np.zeros((120, 3), int)}, r"targets: found shape \(120, 3\), expected \(120\)"),
        ({"scores": np.ones(7)}, r"scores: found shape \(7,\)"),
        ({"mean": np.full((120, 3), np.nan)}, "mean: found NaN or infinity"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_data(**changes)


# --------------------------------------------------------------------------- untrusted names


def hostile_manifest() -> Manifest:
    slices = (ParameterSlice(HOSTILE, (5, 8), 0, S),)
    selection = Selection(HOSTILE, {HOSTILE: [HOSTILE]}, 0, 1, slices, HOSTILE, (HOSTILE,))
    plain = report_manifest(
        selection=selection, metrics={HOSTILE: 1.0}, libraries={HOSTILE: HOSTILE}, warnings=(HOSTILE,)
    )
    name = HOSTILE.replace("/", "")
    return dataclasses.replace(plain, name=name, version=name)


def test_names_cannot_become_markup() -> None:
    page = Page(report_html(ReportData(hostile_manifest())))
    assert "script" not in {tag for tag, _ in page.elements}
    assert not page.all("img")
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert HOSTILE in page.text("li")  # shown as it is, template syntax included
    assert page.text().count("<script>alert(1)") >= 10


@settings(max_examples=25)
@given(st.text(st.characters(exclude_characters="/\r\0", exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_any_name_is_shown_as_it_is(name: str) -> None:
    assume(is_segment(name))
    page = Page(report_html(bare(name=name)))
    assert next(text for tag, text in page.texts if tag == "bdi") == name


def test_a_name_that_is_no_text_loses_nothing_but_itself() -> None:
    assert "a?b" in Page(report_html(bare(name="a\ud800b"))).text()
