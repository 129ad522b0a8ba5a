"""The dashboard that answers whether the service keeps up."""

from docs.dashboards.panels import Dashboard, Panel, Query, Row
from docs.dashboards.queries import (
    JOB,
    MODEL,
    PREDICTIONS,
    RATE,
    SERVED_VERSIONS,
    WINDOW,
    by_version,
    or_none,
    or_zero_by_version,
    quantile,
    share_by_version,
)

LEVELS = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
STAGE_LEVELS = ((0.5, "p50"), (0.99, "p99"))


def _by(labels: str, expression: str) -> str:
    return f"sum by ({labels}) ({expression})"


def _rate(series: str, more: str = "") -> str:
    return f"rate({series}{{{JOB}{more}}}[{RATE}])"


def _latency(level: float) -> str:
    buckets = _by("le", _rate("demur_http_request_duration_seconds_bucket", f", {PREDICTIONS}"))
    return f"(histogram_quantile({level:g}, {buckets}) >= 0) or vector(0)"


def _quantiles(histogram: str, of: str = "") -> tuple[Query, ...]:
    """of: what, where a panel shows several."""
    return tuple(
        Query(or_zero_by_version(quantile(level, histogram)), f"v{{{{version}}}} {of}{name}")
        for level, name in STAGE_LEVELS
    )


TRAFFIC = Row(
    "Traffic, all models",
    (
        Panel(
            "Requests by status",
            "Requests answered per second, by HTTP status; health checks and scrapes are left out.",
            "reqps",
            (
                Query(
                    or_none(
                        _by("status", _rate("demur_http_requests_total", ', route!~"/health/.*|/metrics"')), "status"
                    ),
                    "{{status}}",
                ),
            ),
            stacked=True,
            by_status=True,
        ),
        Panel(
            "Errors by reason",
            "Requests refused or failed per second, by the code that the answer names.",
            "reqps",
            (Query(or_none(_by("reason", _rate("demur_errors_total")), "reason"), "{{reason}}"),),
            stacked=True,
        ),
        Panel(
            "Latency of predictions",
            "From the first byte of a request to the last byte of its answer, slow clients included.",
            "s",
            tuple(Query(_latency(level), name) for level, name in LEVELS),
        ),
        Panel(
            "Burn rate of the error budgets",
            "How many times faster than allowed the last hour used up the budgets: 0.1% failed, 1% slow predictions.",
            "short",
            (
                Query('max(job:demur_predictions:failure_ratio_rate1h{job=~"$job"}) / 0.001 or vector(0)', "failed"),
                Query('max(model:demur_predictions:slow_ratio_rate1h{job=~"$job"}) / 0.01 or vector(0)', "slow"),
            ),
        ),
    ),
)
COMPUTATION = Row(
    "Queue and computation of $model",
    (
        Panel(
            "Time of each stage",
            "To wait for a compute thread, and to compute a batch; and the age of the oldest batch now.",
            "s",
            (
                *_quantiles("demur_queue_seconds", "waiting "),
                *_quantiles("demur_compute_seconds", "computing "),
                Query(f"max by (instance) (demur_oldest_batch_seconds{{{JOB}}})", "{{instance}} oldest batch"),
            ),
        ),
        Panel(
            "Waiting examples",
            "The fullest queue of an instance; where it is full (DEMUR_MAX_QUEUE_ROWS), further requests wait a "
            "second, and then get 429.",
            "short",
            (
                Query(
                    f"max by (version) (sum by (job, instance, version) (demur_queue_rows{{{MODEL}}}))",
                    "v{{version}}",
                ),
            ),
        ),
        Panel(
            "Examples per batch",
            "On average. Larger batches mean more throughput, and that requests wait for each other.",
            "short",
            (
                Query(
                    or_zero_by_version(
                        share_by_version(
                            by_version("rate", "demur_predictions_total", RATE),
                            by_version("rate", "demur_compute_seconds_count", RATE),
                        )
                    ),
                    "v{{version}}",
                ),
            ),
        ),
    ),
)
BUNDLES = Row(
    "Bundles, memory and audit trail",
    (
        Panel(
            "Bundles",
            "Instances of each version; loads within the window; stale (1): a newer bundle was refused; "
            "unreadable (1): versions.json.",
            "short",
            (
                Query(SERVED_VERSIONS.replace("max", "count", 1), "v{{version}} instances"),
                Query(
                    f"sum by (model, outcome) (increase(demur_model_loads_total{{{JOB}}}[{WINDOW}]))",
                    "{{model}} loads, {{outcome}}",
                ),
                Query(f"max by (model) (demur_model_stale{{{JOB}}})", "{{model}} stale"),
                Query(f"max(demur_versions_unreadable{{{JOB}}})", "versions unreadable"),
            ),
        ),
        Panel(
            "Memory of each instance",
            "Of the processes that answer; those that decode images, try bundles or supervise workers come on top.",
            "bytes",
            (Query(f"sum by (instance) (demur_resident_memory_bytes{{{JOB}}})", "{{instance}}"),),
        ),
        Panel(
            "Lost lines of the audit trail",
            "Lines per second that could not be written to the audit file.",
            "cps",
            (Query(f"sum by (instance) (rate(demur_audit_lines_lost_total{{{JOB}}}[{RATE}]))", "{{instance}}"),),
        ),
    ),
)
HEALTH = Dashboard(
    "health",
    "Demur: service health",
    "Does the service keep up, and are the models that it serves those that it should serve?",
    (TRAFFIC, COMPUTATION, BUNDLES),
)
