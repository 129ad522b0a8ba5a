"""The dashboards' own queries over the day, as Grafana would send them for a panel with a point every five minutes."""

import json
import re
from typing import Any

from benchmarks.core.folders import ROOT
from benchmarks.serving.day.plan import MINUTES
from benchmarks.serving.day.prometheus import Prometheus
from benchmarks.serving.day.recording import JOB

DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
EVERY = 5  # minutes between two points
# Grafana's `$__rate_interval` is a step and a scrape interval, and four of these at least.
VARIABLES = {"$__rate_interval": "6m", "$window": "30m", "$job": JOB, "$instance": ".+", "$model": "digits"}
SHOWN = {
    "health": ("Requests by status", "Errors by reason", "Latency of predictions"),
    "uncertainty": ("Examples by version", "Reject rate", "Conformal p-value"),
    "drift": (
        "Evidence of drift",
        "Estimated accuracy",
        "Labelled examples",
        "Accuracy of labelled examples",
        "Evidence against the expected accuracy",
    ),
}
Lines = dict[str, list[float | None]]


def panels(prometheus: Prometheus) -> dict[str, Lines]:
    """Panel -> legend -> values over the day, None where there is none."""
    found: dict[str, Lines] = {}
    for dashboard, titles in SHOWN.items():
        document = json.loads((DASHBOARDS / f"{dashboard}.json").read_text())
        by_title = {panel["title"]: panel for panel in document["panels"]}
        for title in titles:
            found[title] = lines(prometheus, by_title[title]["targets"])
    return found


def lines(prometheus: Prometheus, targets: list[dict[str, Any]]) -> Lines:
    """All series of a panel by their names in its legend."""
    found: Lines = {}
    for target in targets:
        for labels, values in prometheus.over_the_day(filled(target["expr"]), step=60 * EVERY):
            found[legend(target["legendFormat"], labels)] = [
                rounded(values.get(minute)) for minute in range(0, MINUTES + 1, EVERY)
            ]
    return found


def filled(expression: str) -> str:
    """With values in place of the dashboard's variables."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def legend(form: str, labels: dict[str, str]) -> str:
    """Grafana's: {{version}} is the value of that label."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), form)


def rounded(value: float | None) -> float | None:
    """Four digits, which no picture shows more of; None in place of NaN."""
    return None if value is None or value != value else float(f"{value:.4g}")  # noqa: PLR0124
