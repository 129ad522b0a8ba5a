"""What the service tells Prometheus. The registry is an argument; nothing is registered globally.

Every metric can be summed over worker processes (`PROMETHEUS_MULTIPROC_DIR`): gauges that are counts add up, those that
describe a model agree.
"""

import functools
import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
UNIT = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
P_VALUES = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LOG_SPACED = tuple(10.0**exponent for exponent in range(-6, 7))
SCORES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
MODEL = ("model", "version")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


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
        # Looking a series up takes longer than adding to it; there are few, as the labels are bounded.
        self._requests_of = functools.cache(self.requests.labels)
        self._seconds_of = functools.cache(self.request_seconds.labels)

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

    @property
    def per_version(self) -> tuple[Counter | Gauge | Histogram, ...]:
        """Those whose labels are a model's name and version, and nothing else."""
        gauges = (self.false_reject_rate, self.threshold, self.queue_rows)
        times = (self.compute_seconds, self.queue_seconds, self.batch_rows)
        said = (self.top_probability, self.normalised_entropy, self.variance, self.score, self.p_value)
        return (*gauges, self.degraded, *times, *said)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request came to its end; `route` is a template, never a path."""
        self._requests_of(method if method in METHODS else "other", route, str(status)).inc()
        self._seconds_of(route).observe(seconds)

    def load_failed(self, name: str) -> None:
        """A bundle was refused; what served before, if anything, still does."""
        self.loads.labels(name, "failure").inc()
        self.stale.labels(name).set(1)

    def load_mended(self, name: str) -> None:
        """What serves is what is there again."""
        self.stale.labels(name).set(0)


def several_processes() -> bool:
    """Whether worker processes share their metrics through files."""
    return bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))
