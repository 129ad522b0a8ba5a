"""Render the metrics for a scrape: of this process, or of all worker processes, without models that none serves."""

import gzip
import os
from collections.abc import Iterable
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from .metrics import FINISHING, SERVING, SHARED_FOLDER, Metrics, several_processes

INFO = "demur_model_info"
OPENMETRICS, VERSION = "application/openmetrics-text", "1.0.0"
CREATED = "_created"  # when a series began: a quarter of all lines, which nothing here reads
LEVEL = 5  # of compression
Model = tuple[str, str]


def readable(metrics: Metrics) -> CollectorRegistry:
    """The registry to read from."""
    if not several_processes():
        return metrics.registry
    registry = CollectorRegistry()
    gauges = (*metrics.descriptions, *metrics.of_held_out, metrics.feedback.expected)
    descriptions = {family.name for gauge in gauges for family in gauge.describe()}
    registry.register(ServedModels(os.environ[SHARED_FOLDER], descriptions))
    return registry


class Form(NamedTuple):
    """How a scraper wants the metrics."""

    openmetrics: bool
    compressed: bool

    @classmethod
    def wanted(cls, accept: str, encodings: str) -> "Form":
        """By the headers `Accept` and `Accept-Encoding`. Prometheus prefers OpenMetrics."""
        kinds = [kind.partition(";")[0].strip() for kind in accept.lower().split(",")]
        return cls(OPENMETRICS in kinds, "gzip" in encodings.lower())

    @property
    def content_type(self) -> str:
        """With the version of the format."""
        return f"{OPENMETRICS}; version={VERSION}; charset=utf-8" if self.openmetrics else CONTENT_TYPE_LATEST


def exposition(metrics: Metrics, form: Form) -> bytes:
    """Prometheus' own text, or OpenMetrics (https://prometheus.io/docs/specs/om/open_metrics_spec/); each also in
    gzip."""
    found: Any = _Shown(readable(metrics))
    generate: Any = openmetrics.generate_latest if form.openmetrics else generate_latest
    text: bytes = generate(found)
    return gzip.compress(text, LEVEL, mtime=0) if form.compressed else text


class _Shown:
    """What a registry collects, without the times at which its series began."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith(CREATED)]
            yield metric


class ServedModels(Collector):
    """The files of all worker processes, without models that none of them serves.

    Nothing can be removed from those files. So each process writes there which models it serves
    (`demur_model_info`), and a scrape leaves out the rest: a model's `descriptions` once no process serves it, its
    counts once no process answers its requests.
    """

    def __init__(self, folder: str, descriptions: Iterable[str]) -> None:
        self._files = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        self._descriptions = {*descriptions}

    def collect(self) -> Iterable[Metric]:
        """Every metric that has samples left."""
        found: list[Metric] = list(self._files.collect())  # type: ignore[no-untyped-call]
        states = _states(found)
        for metric in found:
            least = SERVING if metric.name in self._descriptions else FINISHING
            metric.samples = [sample for sample in metric.samples if _is_shown(sample, states, least)]
        return found


def _states(found: Iterable[Metric]) -> dict[Model, float]:
    """The highest state of each model over all processes."""
    states: dict[Model, float] = {}
    for sample in (sample for metric in found if metric.name == INFO for sample in metric.samples):
        model = sample.labels["name"], sample.labels["version"]
        states[model] = max(sample.value, states.get(model, sample.value))
    return states


def _is_shown(sample: Sample, states: dict[Model, float], least: float) -> bool:
    if sample.name == INFO:
        return sample.value >= SERVING
    if "version" not in sample.labels:
        return True
    return states.get((sample.labels["model"], sample.labels["version"]), least - 1) >= least
