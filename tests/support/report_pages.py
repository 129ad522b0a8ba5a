"""Pages of the report read back, and bundles to report on."""

import dataclasses
from html.parser import HTMLParser
from typing import Any

import numpy as np

from demur.offline.report.page import ReportData
from demur.service.bundle import (
    Calibration,
    InputSpec,
    Manifest,
    ParameterSlice,
    Prior,
    Selection,
    Tried,
    Verification,
)
from tests.support.manifests import described_outcomes, make_manifest

S, SIGMA, THRESHOLD = 6, 0.5, 0.9
VOID = {"meta", "img", "br", "link", "input", "hr", "base"}


class Page(HTMLParser):
    """Elements, their attributes and the text under each; complains about unbalanced tags."""

    def __init__(self, html: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html.decode())
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, *tags: str) -> str:
        return " ".join("".join(t for tag, t in self.texts if tag != "style" and (not tags or tag in tags)).split())


def report_manifest(task: Any = "classification", **changes: Any) -> Manifest:
    """A manifest with every optional part, as the report shows it."""
    classification = task == "classification"
    grid = tuple(np.logspace(-4, 6, 21).tolist())
    fits = tuple((-0.1 - 1 / (1 + g)) for g in grid)
    given: dict[str, Any] = {
        "name": "digits",
        "version": "3",
        "class_names": None,
        "selection": Selection(
            "auto",
            {"examples": 64},
            11,
            5,
            (ParameterSlice("body.weight", (5, 7), 0, 4), ParameterSlice("head.bias", (5,), 35, 2)),
            explanation="Live weights of the head: cheapest by far.",
            within=("body", "head"),
        ),
        "prior": Prior("budget", 10.0, 1.5, 0.05, Tried(grid, fits, fits, -0.09)),
        "calibration": Calibration(
            "predictive_entropy" if classification else "epistemic_std",
            120,
            0.05,
            THRESHOLD,
            described_outcomes(not classification),
        ),
        "verification": Verification(16, 1e-4, 1e-7, 2e-7, 3e-7),
        "metrics": {"calibration_log_likelihood": -0.25, "calibration_log_likelihood_map": -0.2},
        "libraries": {"numpy": "2.4.6"},
        "warnings": (),
    }
    return make_manifest(
        outputs=3,
        parameter_count=40,
        size=S,
        spec=InputSpec(shape=(2,)),
        scores=np.zeros(1),
        regression=not classification,
        **given | changes,
    )


def make_data(task: Any = "classification", n: int = 120, **changes: Any) -> ReportData:
    rng = np.random.default_rng(5)
    mean, variance = 2 * rng.normal(size=(n, 3)), rng.uniform(0.1, 3, (n, 3))
    targets: np.ndarray = rng.integers(0, 3, n) if task == "classification" else mean + rng.normal(size=(n, 3))
    data = ReportData(report_manifest(task), mean, variance, targets)
    return dataclasses.replace(data, **changes)


def bare(**changes: Any) -> ReportData:
    """Only a manifest, of a bundle about which little is known."""
    prior = Prior("fixed", 10.0, 10.0)
    selection = Selection("random", {}, 0, None, ())
    little: dict[str, Any] = {"prior": prior, "selection": selection, "verification": None, "metrics": {}}
    return ReportData(report_manifest(**little | {"libraries": {}} | changes))


def titles(page: Page) -> set[str]:
    return {text for tag, text in page.texts if tag == "h3"}
