"""What the service tells Prometheus. The registry is an argument; nothing is registered globally.

Every metric can be summed over worker processes (`PROMETHEUS_MULTIPROC_DIR`): gauges that are counts add up, those that
describe a model agree.
"""

import math
import os

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from service.answers import class_names
from service.batching import Batch
from service.bundle import REFERENCE_LEVELS
from service.predictor import PlainPrediction, Prediction, Predictor

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
UNIT = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
P_VALUES = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LOG_SPACED = tuple(10.0**exponent for exponent in range(-6, 7))
SCORES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
MODEL = ("model", "version")


class Metrics:
    """One set of metrics in one registry; labels are bounded (routes are templates, models are those loaded)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._http()
        self._models()
        self._predictions()

    def _http(self) -> None:
        self.requests = self._counter("http_requests", "HTTP requests answered.", "method", "route", "status")
        self.request_seconds = self._histogram(
            "http_request_duration_seconds",
            "From the first byte of a request to the last byte of its answer.",
            SECONDS,
            "route",
        )
        self.in_flight = Gauge(
            "probity_http_requests_in_flight",
            "Requests being answered now.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.errors = self._counter("errors", "Requests refused or failed, by reason.", "reason")

    def _models(self) -> None:
        self.info = self._gauge("model_info", "1 for a loaded model.", "name", "version", "digest")
        self.false_reject_rate = self._gauge(
            "false_reject_rate", "Share of in-distribution inputs rejected by design.", *MODEL
        )
        self.threshold = self._gauge("reject_threshold", "Largest score accepted.", *MODEL)
        self.reference = self._gauge(
            "reference", "Quantiles on the calibration data, to show drift against.", *MODEL, "quantity", "level"
        )
        self.loads = self._counter("model_loads", "Bundles loaded, or refused.", "model", "outcome")
        self.stale = self._gauge(
            "model_stale", "1 where a newer bundle was refused and an older one serves, or none.", "model"
        )

    def _predictions(self) -> None:
        self.predictions = self._counter("predictions", "Examples answered, by predicted class.", *MODEL, "label")
        self.rejections = self._counter("rejections", "Examples flagged as out of distribution.", *MODEL, "reason")
        self.degraded = self._counter("degraded", "Examples answered by the plain network alone.", *MODEL)
        self.queue_rows = Gauge(
            "probity_queue_rows",
            "Examples that wait now.",
            MODEL,
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.compute_seconds = self._histogram("compute_seconds", "Computing one batch.", SECONDS, *MODEL)
        self.queue_seconds = self._histogram("queue_seconds", "Waiting for a free worker.", SECONDS, *MODEL)
        self.batch_rows = self._histogram("batch_rows", "Examples in one batch.", ROWS, *MODEL)
        self.top_probability = self._histogram("top_probability", "Probability of the predicted class.", UNIT, *MODEL)
        self.normalised_entropy = self._histogram("normalised_entropy", "Predictive entropy / log K.", UNIT, *MODEL)
        self.variance = self._histogram(
            "functional_variance", "Largest output variance of an example.", LOG_SPACED, *MODEL
        )
        self.score = self._histogram("ood_score", "Out-of-distribution score.", SCORES, *MODEL)
        self.p_value = self._histogram("ood_p_value", "Conformal p-value of the score.", P_VALUES, *MODEL)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"probity_{name}", help_text, labels, registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"probity_{name}", help_text, labels, registry=self.registry, multiprocess_mode="livemax")

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"probity_{name}", help_text, labels, buckets=buckets, registry=self.registry)

    def model_loaded(self, predictor: Predictor) -> None:
        """Announce a model: its identity and its reference values; its series start at zero."""
        manifest = predictor.manifest
        model = (manifest.name, manifest.version)
        self.loads.labels(manifest.name, "success").inc()
        self.loads.labels(manifest.name, "failure")
        self.stale.labels(manifest.name).set(0)
        self.info.labels(*model, predictor.digest).set(1)
        self.false_reject_rate.labels(*model).set(predictor.rule.false_reject_rate)
        self.threshold.labels(*model).set(predictor.rule.threshold)
        self.rejections.labels(*model, "score")
        self.degraded.labels(*model)
        for label in _labels(predictor):
            self.predictions.labels(*model, label)
        for quantity, values in predictor.reference.items():
            for level, value in zip(REFERENCE_LEVELS, values.tolist(), strict=True):
                self.reference.labels(*model, quantity, str(level)).set(value)

    def model_unloaded(self, predictor: Predictor) -> None:
        """Its counters stay, as counters do; it is no longer among the loaded ones."""
        manifest = predictor.manifest
        self.info.labels(manifest.name, manifest.version, predictor.digest).set(0)

    def load_failed(self, name: str) -> None:
        """A bundle was refused; what served before, if anything, still does."""
        self.loads.labels(name, "failure").inc()
        self.stale.labels(name).set(1)

    def batch_computed(self, predictor: Predictor, batch: Batch) -> None:
        """Time and size of one batch."""
        model = (predictor.manifest.name, predictor.manifest.version)
        self.compute_seconds.labels(*model).observe(batch.compute_seconds)
        self.batch_rows.labels(*model).observe(batch.rows)

    def answered(self, predictor: Predictor, prediction: Prediction | PlainPrediction, queue_seconds: float) -> None:
        """Count one request that was answered, example by example."""
        model = (predictor.manifest.name, predictor.manifest.version)
        self.queue_seconds.labels(*model).observe(queue_seconds)
        if isinstance(prediction, PlainPrediction):
            self.degraded.labels(*model).inc(len(prediction))
            return
        self.rejections.labels(*model, "score").inc(int(np.count_nonzero(prediction.rejected)))
        _observe(self.variance.labels(*model), prediction.variance.max(axis=1))
        _observe(self.score.labels(*model), prediction.score)
        _observe(self.p_value.labels(*model), prediction.p_value)
        labels = _labels(predictor)
        if prediction.probabilities is None or prediction.total is None:
            self.predictions.labels(*model, labels[0]).inc(len(prediction))
            return
        _observe(self.top_probability.labels(*model), prediction.probabilities.max(axis=1))
        _observe(self.normalised_entropy.labels(*model), prediction.total / math.log(len(labels)))
        counts = np.bincount(prediction.probabilities.argmax(axis=1), minlength=len(labels))
        for i in np.flatnonzero(counts).tolist():
            self.predictions.labels(*model, labels[i]).inc(int(counts[i]))


def several_processes() -> bool:
    """Whether worker processes share their metrics through files."""
    return bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))


def _observe(histogram: Histogram, values: "np.typing.NDArray[np.float64]") -> None:
    for value in values.tolist():
        histogram.observe(value)


def _labels(predictor: Predictor) -> list[str]:
    """The classes a prediction is counted under; a regression has one, named after the task."""
    manifest = predictor.manifest
    return class_names(manifest) if manifest.task == "classification" else ["regression"]
