"""What a scrape of the service can hold, and a reader of the expressions that select from it."""

import re
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from demur.service.monitoring.array_histogram import ArrayHistogram
from demur.service.monitoring.metrics import Metrics
from tests.support.deployment import RECORDED

SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
# What Prometheus adds to every scrape: a series of its own, and two labels on all of them.
PROMETHEUS_SERIES = {"up": frozenset[str](), "ALERTS": frozenset({"alertname", "alertstate", "severity"})}
PROMETHEUS_LABELS = {"job", "instance"}


def _exported() -> dict[str, frozenset[str]]:
    """Every series name that a scrape of the service can hold -> the names of its labels."""
    registry = CollectorRegistry()
    declared = Metrics(registry)
    named = [*vars(declared).values(), *vars(declared.feedback).values()]
    # prometheus-client shows its labels with a first sample only.
    labels = {
        family.name: metric.label_names if isinstance(metric, ArrayHistogram) else metric._labelnames  # noqa: SLF001
        for metric in named
        if isinstance(metric, (MetricWrapperBase, ArrayHistogram))
        for family in metric.describe()
    }
    return {
        family.name + suffix: frozenset(labels[family.name]) | ({"le"} if suffix == "_bucket" else set())
        for family in registry.collect()
        for suffix in SUFFIXES[family.type]
    }


EXPORTED = _exported()
# Their labels are those that the outermost sum or maximum keeps.
RECORDED_SERIES = {
    name: frozenset(label.strip() for label in re.findall(r"by \(([^)]*)\)", expression)[0].split(","))
    for name, expression in RECORDED.items()
}
SERIES = EXPORTED | PROMETHEUS_SERIES | RECORDED_SERIES

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
GROUPING = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"
KEYWORDS = {"and", "or", "unless", "bool", "offset", "group_left", "group_right"}


def _bare(expression: str) -> str:
    """The expression with every quoted string emptied, so that nothing in it looks like syntax."""
    return re.sub(r'"[^"]*"', '""', expression)


def series_names(expression: str) -> set[str]:
    """The series names that an expression selects: what is left without matchers, ranges, groupings and functions."""
    text = re.sub(rf"\{{[^}}]*\}}|\[[^\]]*\]|{GROUPING}", " ", _bare(expression))
    return set(re.findall(rf"(?<![\w:$.]){NAME}\b(?!\s*\()", text)) - KEYWORDS


def matched_labels(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each series name with the labels its matchers name."""
    for name, matchers in re.findall(rf"({NAME})\{{([^}}]*)\}}", _bare(expression)):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))


def grouped_labels(expression: str) -> set[str]:
    return {label.strip() for labels in re.findall(GROUPING, expression) for label in labels.split(",")} - {""}
