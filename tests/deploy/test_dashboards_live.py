"""Every query of every panel, answered by a real Prometheus that scrapes the real service with a real bundle."""

import io
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.inference.predictor import Predictor
from tests.reference import calibration_error
from tests.support.deployment import DASHBOARDS, PANELS, RECORDED, filled
from tests.support.digits import GOLDEN, Array, digits, turned
from tests.support.live_prometheus import Prometheus, scraping
from tests.support.outcomes import sure_of_held_out
from tests.support.secrets import secret_file
from tests.support.server import Server, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="prometheus is not on PATH (Debian package: prometheus)"
    ),
]
BUNDLE = GOLDEN / "v1" / "bundle"
MODEL = Predictor.load(BUNDLE).manifest.name
QUERIES = {f"{panel['title']} {t['refId']}": filled(t["expr"], MODEL) for panel in PANELS for t in panel["targets"]}
# Quantiles of answers have no value where nothing was answered.
ANSWERS = (
    "Estimated accuracy",
    "Out-of-distribution score",
    "Conformal p-value",
    "Top prob",
)
# Nor have accuracies and errors where no label came.
LABELLED = ("Accuracy of labelled examples", "Expected calibration error", "Root mean squared error")
SENT = "demur_ood_p_value_count"


@dataclass
class Watched:
    """A service, and the Prometheus that scrapes it."""

    server: Server
    prometheus: Prometheus

    def send(self, images: Array) -> dict[str, Any]:
        """The answer."""
        stream = io.BytesIO()
        np.save(stream, np.ascontiguousarray(images))
        return self._posted("/predict", stream.getvalue(), "application/x-npy")

    def label(self, answer: dict[str, Any], wrong: int) -> None:
        """Report that the answer was right, but for its first `wrong` examples."""
        names = [one["label"] for one in answer["predictions"]]
        others = [f"{(int(name) + 1) % 10}" for name in names]
        body = json.dumps({"receipt": answer["receipt"], "labels": others[:wrong] + names[wrong:]})
        assert self._posted("/feedback", body.encode(), "application/json")["counted"] == len(names)

    def _posted(self, path: str, body: bytes, media_type: str) -> dict[str, Any]:
        status, _, text = self.server.request("POST", path, body, {"Content-Type": media_type})
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def samples(self, expression: str) -> list[tuple[dict[str, str], float]]:
        found: list[Any] = self.prometheus.get("/api/v1/query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def wait_for_all(
        self, queries: dict[str, str], meanwhile: Callable[[], object] = lambda: None
    ) -> dict[str, list[float]]:
        """The values of every query, once each has some; the test's timeout is the deadline."""
        found = dict[str, list[float]]()
        while missing := queries.keys() - found.keys():
            for name in missing:
                meanwhile()
                if values := [value for _, value in self.samples(queries[name])]:
                    found[name] = values
        return found


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    file, bundle = str(secret_file(tmp_path)), sure_of_held_out(BUNDLE, tmp_path / "bundle", 0.9)
    with running(bundle, DEMUR_FEEDBACK_SECRET_FILE=file) as server, scraping(server.port, tmp_path) as prometheus:
        prometheus.wait_for(SENT, 0)
        yield Watched(server, prometheus)


def test_every_query_has_values_under_traffic(watched: Watched) -> None:
    def traffic() -> None:
        for images in (digits()[:20], turned(digits()[:20])):
            watched.label(watched.send(images), 2)
        assert watched.server.request("POST", "/predict", b"{")[0] == 400

    for name, values in watched.wait_for_all(QUERIES | RECORDED, traffic).items():
        assert all(map(math.isfinite, values)), name


def test_idle_panels_show_zero_or_a_gap_and_never_nan(watched: Watched) -> None:
    busy = {name: query for name, query in QUERIES.items() if not name.startswith(ANSWERS + LABELLED)}
    for name, values in watched.wait_for_all(busy).items():
        assert all(map(math.isfinite, values)), name
    for name in QUERIES.keys() - busy.keys():
        assert all(math.isfinite(value) for _, value in watched.samples(QUERIES[name])), name
    for title in ("Reject rate", "Time of each stage", "Evidence of drift"):
        assert [value for _, value in watched.samples(QUERIES[f"{title} A"])] == [0.0], title


def test_a_mark_shows_when_a_version_began_to_serve(watched: Watched) -> None:
    for dashboard in DASHBOARDS.values():
        versions = dashboard["annotations"]["list"][0]
        ((labels, _),) = watched.samples(filled(versions["expr"], MODEL))
        assert labels == {"name": MODEL, "version": Predictor.load(BUNDLE).manifest.version}


def test_accuracy_and_calibration_are_those_of_the_labels(watched: Watched) -> None:
    answer, wrong = watched.send(digits()[:200]), 30
    watched.label(answer, wrong)
    watched.prometheus.wait_for("sum(demur_feedback_examples_total)", 200)
    right = np.arange(200) >= wrong
    rejected = np.array([one["rejected"] for one in answer["predictions"]])
    confidence = np.array([one["probability"] for one in answer["predictions"]])
    for letter, chosen in (("A", ~rejected), ("B", rejected)):
        query = QUERIES[f"Accuracy of labelled examples {letter}"]
        assert watched.prometheus.value(query) == pytest.approx(right[chosen].mean(), abs=1e-6)
    expected = calibration_error(confidence.tolist(), right.tolist(), 10)
    assert watched.prometheus.value(QUERIES["Expected calibration error A"]) == pytest.approx(expected, abs=1e-6)
    assert watched.prometheus.value(QUERIES["Root mean squared error A"]) == 0
    watched.label(watched.send(digits()[:50]), 50)
    watched.prometheus.wait_for("sum(demur_feedback_examples_total)", 250)
    assert (watched.prometheus.value(QUERIES["Evidence against the expected accuracy A"]) or 0) >= 2


def test_evidence_of_drift_is_that_of_the_inputs(watched: Watched) -> None:
    """Digits as they are give no alarm, turned ones do."""
    sent, alarms = 0, list[float]()
    for images in (digits(), turned(digits())):
        for part in np.array_split(images, len(images) // 10):
            watched.send(part)
        sent += len(images)
        watched.prometheus.wait_for(SENT, sent)
        alarms.append(watched.prometheus.value("demur_drift_alarms_total") or 0.0)
    assert alarms[0] == 0
    assert alarms[1] >= 1
