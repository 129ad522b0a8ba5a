"""What the service tells Prometheus. The registry is an argument; nothing is registered globally."""

import math

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from service.answers import class_names
from service.bundle import REFERENCE_LEVELS
from service.predictor import Prediction, Predictor

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
UNIT = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
P_VALUES = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LOG_SPACED = tuple(10.0**exponent for exponent in range(-6, 7))
SCORES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


class Metrics:
    """One set of metrics in one registry; labels are bounded (routes are templates, models are those loaded)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.requests = Counter(
            "probity_http_requests", "HTTP requests answered.", ["method", "route", "status"], registry=registry
        )
        self.request_seconds = Histogram(
            "probity_http_request_duration_seconds",
            "From the first byte of a request to the last byte of its answer.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge("probity_http_requests_in_flight", "Requests being answered now.", registry=registry)
        self.errors = Counter("probity_errors", "Requests refused or failed, by reason.", ["reason"], registry=registry)
        self.info = Gauge(
            "probity_model_info", "1 for a loaded model.", ["name", "version", "digest"], registry=registry
        )
        self.false_reject_rate = Gauge(
            "probity_false_reject_rate",
            "Share of in-distribution inputs rejected by design.",
            ["model"],
            registry=registry,
        )
        self.threshold = Gauge("probity_reject_threshold", "Largest score accepted.", ["model"], registry=registry)
        self.reference = Gauge(
            "probity_reference",
            "Quantiles on the calibration data, to show drift against.",
            ["model", "quantity", "level"],
            registry=registry,
        )
        self.predictions = Counter(
            "probity_predictions", "Examples answered, by predicted class.", ["model", "label"], registry=registry
        )
        self.rejections = Counter(
            "probity_rejections", "Examples flagged as out of distribution.", ["model", "reason"], registry=registry
        )
        self.compute_seconds = self._histogram("compute_seconds", "Computing one batch.", SECONDS)
        self.queue_seconds = self._histogram("queue_seconds", "Waiting for a free worker.", SECONDS)
        self.batch_rows = self._histogram("batch_rows", "Examples in one batch.", ROWS)
        self.top_probability = self._histogram("top_probability", "Probability of the predicted class.", UNIT)
        self.normalised_entropy = self._histogram("normalised_entropy", "Predictive entropy / log K.", UNIT)
        self.variance = self._histogram("functional_variance", "Largest output variance of an example.", LOG_SPACED)
        self.score = self._histogram("ood_score", "Out-of-distribution score.", SCORES)
        self.p_value = self._histogram("ood_p_value", "Conformal p-value of the score.", P_VALUES)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"probity_{name}", help_text, ["model"], buckets=buckets, registry=self.registry)

    def model_loaded(self, predictor: Predictor) -> None:
        """Announce a model: its identity and its reference values; its series start at zero."""
        manifest = predictor.manifest
        self.info.labels(manifest.name, manifest.version, predictor.digest).set(1)
        self.false_reject_rate.labels(manifest.name).set(predictor.rule.false_reject_rate)
        self.threshold.labels(manifest.name).set(predictor.rule.threshold)
        self.rejections.labels(manifest.name, "score")
        for label in _labels(predictor):
            self.predictions.labels(manifest.name, label)
        for quantity, values in predictor.reference.items():
            for level, value in zip(REFERENCE_LEVELS, values.tolist(), strict=True):
                self.reference.labels(manifest.name, quantity, str(level)).set(value)

    def batch_answered(self, predictor: Predictor, prediction: Prediction, compute_seconds: float) -> None:
        """Count one answered batch, example by example."""
        model = predictor.manifest.name
        self.compute_seconds.labels(model).observe(compute_seconds)
        self.batch_rows.labels(model).observe(len(prediction.mean))
        self.rejections.labels(model, "score").inc(int(np.count_nonzero(prediction.rejected)))
        _observe(self.variance.labels(model), prediction.variance.max(axis=1))
        _observe(self.score.labels(model), prediction.score)
        _observe(self.p_value.labels(model), prediction.p_value)
        labels = _labels(predictor)
        if prediction.probabilities is None or prediction.total is None:
            self.predictions.labels(model, labels[0]).inc(len(prediction.mean))
            return
        _observe(self.top_probability.labels(model), prediction.probabilities.max(axis=1))
        _observe(self.normalised_entropy.labels(model), prediction.total / math.log(len(labels)))
        counts = np.bincount(prediction.probabilities.argmax(axis=1), minlength=len(labels))
        for label, count in zip(labels, counts.tolist(), strict=True):
            self.predictions.labels(model, label).inc(count)


def _observe(histogram: Histogram, values: "np.typing.NDArray[np.float64]") -> None:
    for value in values.tolist():
        histogram.observe(value)


def _labels(predictor: Predictor) -> list[str]:
    """The classes a prediction is counted under; a regression has one, named after the task."""
    manifest = predictor.manifest
    return class_names(manifest) if manifest.task == "classification" else ["regression"]
