"""The service's Prometheus metrics. The registry is an argument; nothing is registered globally.

Every metric can be summed over worker processes (`PROMETHEUS_MULTIPROC_DIR`): gauges that are counts add up, those that
describe a model agree. `demur.service.monitoring.exposition` renders them.
"""

import functools
import os
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from .array_histogram import ArrayHistogram
from .feedback_metrics import FeedbackMetrics

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # a variable of prometheus-client's
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MODEL = ("model", "version")
# Conformal p-values are uniform on unchanged data, whatever the model.
P_VALUES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Every code of a refusal. Their series start at zero: a rate over a series that begins with its first error misses
# that error.
ERROR_REASONS = (
    "batcher_failed",
    "body_timeout",
    "body_too_large",
    "busy",
    "compute_hangs",
    "content_encoding",
    "deadline",
    "deadline_client",
    "decoder",
    "draining",
    "false_reject_rate",
    "feedback_off",
    "field",
    "gone",
    "gone_slow",
    "head_timeout",
    "head_too_large",
    "http",
    "input",
    "input_too_large",
    "internal",
    "json",
    "loading",
    "media_type",
    "method_not_allowed",
    "model_not_found",
    "models_missing",
    "multipart",
    "network",
    "network_failed",
    "non_finite_output",
    "not_found",
    "not_ready",
    "queue_full",
    "tiny_chunks",
    "unauthorized",
)
# Every status that a request for a prediction can get.
PREDICT_STATUSES = (200, 400, 401, 404, 405, 408, 413, 415, 422, 429, 499, 500, 503, 504)
# Raw values of `model_info`; a scrape shows models that are SERVING only.
SERVING, FINISHING, REMOVED = 1, 0, -1


class Metrics:
    """One set of metrics in one registry; labels are bounded (routes are templates, models are those loaded)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.serving: dict[tuple[str, str], str] = {}
        """Name and version -> digest of the bundle that the gauges describe."""
        self._http()
        self._models()
        self._predictions()
        self._estimated_accuracy()
        self._shadow()
        self.feedback = FeedbackMetrics(registry)

    def _http(self) -> None:
        self.requests = self._counter("http_requests", "HTTP requests answered.", "method", "route", "status")
        self.request_seconds = self._histogram(
            "http_request_duration_seconds",
            "From the first byte of a request to the last byte of its answer.",
            SECONDS,
            "route",
        )
        self.in_flight = self._sum_over_workers("http_requests_in_flight", "Requests being answered now.")
        self.errors = self._counter("errors", "Requests refused or failed, by reason.", "reason")
        self.memory = self._sum_over_workers(
            "resident_memory_bytes",
            "Memory of the processes that answer, without those that decode images, try bundles or supervise workers.",
        )
        self.audit_lost = self._counter("audit_lines_lost", "Lines of the audit trail that could not be written.")
        self.spans = self._counter("spans", "Spans made of traced requests.")
        self.spans_sent = self._counter(
            "spans_sent", "Of these, those that the collector took; the others wait to be sent, or are lost."
        )
        # Cached, since a look-up takes longer than adding; the labels are bounded, so there are few.
        self._requests_of = functools.cache(self.requests.labels)
        self._seconds_of = functools.cache(self.request_seconds.labels)

    def _models(self) -> None:
        self.info = self._gauge("model_info", "1 for a loaded model.", "name", "version", "digest")
        self.false_reject_rate = self._gauge(
            "false_reject_rate", "Share of in-distribution inputs rejected by design.", *MODEL
        )
        self.false_reject_rate_bound = self._gauge(
            "false_reject_rate_bound",
            "What that share stays below with a confidence of 99.9 %, given the size of the calibration set.",
            *MODEL,
        )
        self.loads = self._counter("model_loads", "Bundles loaded, or refused.", "model", "outcome")
        self.stale = self._gauge(
            "model_stale", "1 where a newer bundle was refused and an older one serves, or none.", "model"
        )
        self.versions_unreadable = self._gauge("versions_unreadable", "1 while versions.json cannot be read.")

    def _predictions(self) -> None:
        self.predictions = self._counter("predictions", "Examples answered, by predicted class.", *MODEL, "label")
        self.rejections = self._counter(
            "rejections", "Examples flagged as out of distribution, by predicted class.", *MODEL, "reason", "label"
        )
        self.mistakes = self._counter(
            "mistakes", "Examples that look like a mistake of the client, rejected or not.", *MODEL, "mistake"
        )
        self.out_of_range = self._counter(
            "inputs_out_of_range", "Examples with values far outside the range that the network was fitted on.", *MODEL
        )
        self.drift_evidence = self._gauge(
            "drift_evidence",
            "log10 of half the larger test martingale: evidence that scores are not like the held-out ones.",
            *MODEL,
        )
        self.drift_alarms = self._counter(
            "drift_alarms", "Times that the evidence of drift reached its limit; the test begins again then.", *MODEL
        )
        self.queue_rows = self._sum_over_workers("queue_rows", "Examples that wait now.", *MODEL)
        self.oldest_batch = self._gauge(
            "oldest_batch_seconds", "For how long the oldest running batch has been computed; 0 without one."
        )
        self.compute_seconds = self._histogram("compute_seconds", "Computing one batch.", SECONDS, *MODEL)
        waiting = "Waiting for room in the queue, and for a free compute thread."
        self.queue_seconds = self._histogram("queue_seconds", waiting, SECONDS, *MODEL)
        text = "Conformal p-value of the score; uniform from 0 to 1 on unchanged data."
        self.p_value = ArrayHistogram("demur_ood_p_value", text, MODEL, P_VALUES, self.registry)

    def _estimated_accuracy(self) -> None:
        self.decided_examples = self._counter(
            "decided_examples", "Examples of a classification, by what was decided.", *MODEL, "decision"
        )
        self.decided_confidence = self._counter(
            "decided_confidence", "Sum of their probabilities to be right.", *MODEL, "decision"
        )
        self.held_out_excess = self._gauge(
            "held_out_confidence_excess",
            "Mean probability to be right minus accuracy, of held-out examples; decision: accepted, or all.",
            *MODEL,
            "decision",
        )
        self.held_out_low, self.held_out_high = (
            self._gauge(
                f"held_out_accuracy_{end}",
                f"{end.capitalize()} end of the 99 % confidence interval of the accuracy on held-out examples.",
                *MODEL,
                "decision",
            )
            for end in ("low", "high")
        )

    def _shadow(self) -> None:
        self.shadow_examples = self._counter("shadow_examples", "Answers that a shadow predicted too.", *MODEL)
        self.shadow_changed = self._counter("shadow_changed", "Of these, those that it answers otherwise.", *MODEL)
        self.shadow_newly_rejected = self._counter(
            "shadow_newly_rejected", "Of these, those that were accepted and that it rejects.", *MODEL
        )
        self.shadow_newly_accepted = self._counter(
            "shadow_newly_accepted", "Of these, those that were rejected and that it accepts.", *MODEL
        )
        self.shadow_p_value_distance = self._counter(
            "shadow_p_value_distance", "Sum of how far its p-values are from the answers'.", *MODEL
        )
        self.shadow_lost = self._counter("shadow_lost", "Answers that a shadow could not predict.", *MODEL)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"demur_{name}", help_text, labels, registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"demur_{name}", help_text, labels, registry=self.registry, multiprocess_mode="livemax")

    def _sum_over_workers(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"demur_{name}", help_text, labels, registry=self.registry, multiprocess_mode="livesum")

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"demur_{name}", help_text, labels, buckets=buckets, registry=self.registry)

    @property
    def descriptions(self) -> tuple[Gauge, ...]:
        """Gauges that describe a model by name and version; removed as soon as it stops serving."""
        return self.false_reject_rate, self.false_reject_rate_bound

    @property
    def of_held_out(self) -> tuple[Gauge, Gauge, Gauge]:
        """What held-out data showed, by decision too: excess of the confidence, and both ends of the accuracy."""
        return self.held_out_excess, self.held_out_low, self.held_out_high

    @property
    def measurements(self) -> tuple[Counter | Gauge | Histogram | ArrayHistogram, ...]:
        """Measurements with a model's name and version as their only labels."""
        work = (self.queue_rows, self.queue_seconds, self.compute_seconds)
        return (*work, self.p_value, self.out_of_range, self.drift_evidence, self.drift_alarms)

    def expect(self, predict_routes: Iterable[str]) -> None:
        """Start the series of predictions, and of every error, at zero."""
        for reason in ERROR_REASONS:
            self.errors.labels(reason)
        for route in predict_routes:
            self._seconds_of(route)
            for status in PREDICT_STATUSES:
                self._requests_of("POST", route, str(status))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one finished request; `route` is a template, never a path."""
        self._requests_of(method if method in METHODS else "other", route, str(status)).inc()
        self._seconds_of(route).observe(seconds)

    def load_failed(self, name: str) -> None:
        """Count a refused bundle; the model loaded before, if any, still serves."""
        self.loads.labels(name, "failure").inc()
        self.stale.labels(name).set(1)

    def load_recovered(self, name: str) -> None:
        """Note that the served model is the one in the folder again."""
        self.stale.labels(name).set(0)


def several_processes() -> bool:
    """Whether worker processes share their metrics through files."""
    return bool(os.environ.get(SHARED_FOLDER))
