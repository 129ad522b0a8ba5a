"""The report: a page that stands alone, says what the manifest says, and is the same for the same data."""

import base64
import re

import matplotlib as mpl
import numpy as np
import pytest

from demur.offline.evaluation.diagnostics import expected_calibration_error
from demur.offline.report.page import report_html
from demur.service.inference.graph import GraphOutputs
from demur.service.inference.prediction import Predictive
from demur.service.maths.predictive import link_approx, softmax
from tests.support.report_pages import SIGMA, THRESHOLD, Page, make_data, titles

PAPER = "https://arxiv.org/abs/2010.14689"


@pytest.fixture(scope="module")
def written() -> dict[str, bytes]:
    """The two full pages, drawn once: drawing is what takes time here."""
    return {task: report_html(make_data(task)) for task in ("classification", "regression")}


@pytest.fixture(scope="module", params=["classification", "regression"])
def page(request: pytest.FixtureRequest, written: dict[str, bytes]) -> Page:
    return Page(written[request.param])


@pytest.fixture(scope="module")
def classification(written: dict[str, bytes]) -> Page:
    return Page(written["classification"])


# --------------------------------------------------------------------------- stands alone


def test_the_page_is_whole(page: Page) -> None:
    assert [tag for tag, _ in page.elements[:2]] == ["html", "head"]
    assert len(page.all("h1")) == len(page.all("title")) == len(page.all("main")) == 1
    assert page.text("title") == "digits 3: Demur report"
    assert {"viewport", "color-scheme"} <= {meta.get("name") for meta in page.all("meta")}


def test_every_figure_has_words(page: Page) -> None:
    images = page.all("img")
    assert len(images) == len(page.all("figcaption")) == len(page.all("figure"))
    assert all(len(image["alt"] or "") > 40 for image in images)
    captions = [text for tag, text in page.texts if tag == "figcaption"]
    assert all(text.endswith(".") and len(text) > 40 for text in captions)


def test_nothing_comes_from_elsewhere(page: Page) -> None:
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.elements}
    attributes = [(name, value or "") for _, found in page.elements for name, value in found.items()]
    assert not any(name.startswith("on") for name, _ in attributes)
    assert all(value.startswith("data:image/svg+xml;base64,") for name, value in attributes if name == "src")
    assert [value for name, value in attributes if name == "href"] == [PAPER]
    style = "".join(text for tag, text in page.texts if tag == "style")
    assert "url(" not in style
    assert "@import" not in style
    assert '"Segoe UI"' in style  # as it was written, not escaped
    (policy,) = (meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_figures_refer_to_themselves_only_and_hold_no_date(page: Page) -> None:
    for image in page.all("img"):
        svg = base64.b64decode((image["src"] or "").partition(",")[2]).decode()
        assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', svg))
        assert "dc:date" not in svg
        assert "<script" not in svg


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_same_data_give_the_same_bytes_whatever_the_users_settings(task: str, written: dict[str, bytes]) -> None:
    with mpl.rc_context({"font.size": 30, "svg.hashsalt": None, "axes.grid": False, "text.usetex": True}):
        assert report_html(make_data(task)) == written[task]


# --------------------------------------------------------------------------- says what is known


def test_the_numbers_of_the_manifest_are_there(page: Page) -> None:
    text = page.text()
    for expected in ("S\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}6", "D\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}40"):
        assert " ".join(expected.split()) in text
    for expected in ("0.9", "−0.25", "−0.2", "0.05 nats", "λ S / D", "3 × 10⁻⁷", "2.4.6"):  # noqa: RUF001
        assert expected in text
    for expected in ("auto", '{"examples": 64}', "in body, head", "Live weights of the head: cheapest by far."):
        assert expected in text


def test_bars_are_shares_of_the_largest(classification: Page) -> None:
    widths = [div["style"] for div in classification.all("div") if "style" in div]
    assert widths == ["width:100.0%", "width:50.0%"]
    assert "66.7 %" in classification.text("td")
    assert "11.4 %" in classification.text("td")  # 4 of 5 x 7


def test_classification_figures_and_their_numbers(classification: Page) -> None:
    figures = {"Reliability", "Rejection", "Scores"}
    assert figures <= titles(classification)
    data = make_data()
    assert data.mean is not None
    assert data.variance is not None
    assert data.targets is not None
    plain = expected_calibration_error(softmax(data.mean), data.targets)
    full = expected_calibration_error(link_approx(data.mean, data.variance), data.targets)
    alts = " ".join(image["alt"] or "" for image in classification.all("img"))
    assert f"{plain:.3f} for the temperature alone, {full:.3f} for Demur" in alts
    rejected = int((Predictive().undecided(GraphOutputs(data.mean, data.variance)).score > THRESHOLD).sum())
    assert 0 < rejected < 120
    assert f"{rejected} lie above the threshold 0.9" in alts


def test_regression_figures_and_their_numbers(written: dict[str, bytes]) -> None:
    data = make_data("regression")
    page = Page(written["regression"])
    assert {"Interval coverage", "Residuals", "Rejection", "Scores"} <= titles(page)
    assert "Reliability" not in titles(page)
    assert data.mean is not None
    assert data.variance is not None
    std = np.sqrt(data.variance + SIGMA**2)
    inside = 100 * float((np.abs(data.targets - data.mean) <= 1.959964 * std).mean())
    alts = " ".join(image["alt"] or "" for image in page.all("img"))
    assert f"holds {inside:.1f} % of held-out targets" in alts
    assert f"95 % interval {inside:.3g} %" in page.text("dt", "dd").replace("interval", "interval ")
