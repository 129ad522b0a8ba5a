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


def _by(labels: str, expression: str) -> str:
    return f"sum by ({labels}) ({expression})"


def _rate(series: str, more: str = "") -> str:
    return f"rate({series}{{{JOB}{more}}}[{RATE}])"


def _latency(level: float) -> str:
    buckets = _by("le", _rate("probity_http_request_duration_seconds_bucket", f", {PREDICTIONS}"))
    return f"(histogram_quantile({level:g}, {buckets}) >= 0) or vector(0)"


def _quantiles(histogram: str) -> tuple[Query, ...]:
    return tuple(
        Query(or_zero_by_version(quantile(level, histogram)), f"v{{{{version}}}} {name}") for level, name in LEVELS
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
                        _by("status", _rate("probity_http_requests_total", ', route!~"/health/.*|/metrics"')), "status"
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
            (Query(or_none(_by("reason", _rate("probity_errors_total")), "reason"), "{{reason}}"),),
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
                Query('max(job:probity_predictions:failure_ratio_rate1h{job=~"$job"}) / 0.001 or vector(0)', "failed"),
                Query('max(model:probity_predictions:slow_ratio_rate1h{job=~"$job"}) / 0.01 or vector(0)', "slow"),
            ),
        ),
        Panel(
            "Requests in flight",
            "Requests being answered now, over all instances.",
            "short",
            (Query(f"sum(probity_http_requests_in_flight{{{JOB}}}) or vector(0)", "in flight"),),
        ),
        Panel(
            "Room for requests in use",
            "Share of the memory budget for requests under way that is used; at 100% further requests get 429.",
            "percentunit",
            (
                Query(
                    f"max by (instance) (probity_pending_bytes{{{JOB}}}"
                    f" / clamp_min(probity_pending_limit_bytes{{{JOB}}}, 1))",
                    "{{instance}}",
                ),
            ),
            most=1.0,
        ),
    ),
)
COMPUTATION = Row(
    "Queue and computation of $model",
    (
        Panel(
            "Queue wait",
            "How long a request waits for a free compute thread.",
            "s",
            _quantiles("probity_queue_seconds"),
        ),
        Panel(
            "Queue saturation",
            "Share of the queue that is full, on the fullest instance; at 100% further requests get 429.",
            "percentunit",
            (
                Query(
                    f"max by (version) (sum by (job, instance, version) (probity_queue_rows{{{MODEL}}})"
                    f" / on (job, instance) group_left () clamp_min(probity_queue_limit_rows{{{JOB}}}, 1))",
                    "v{{version}}",
                ),
            ),
            most=1.0,
        ),
        Panel(
            "Decode time",
            "How long it takes to decode the inputs of one request; images take longest.",
            "s",
            _quantiles("probity_decode_seconds"),
        ),
        Panel("Compute time", "How long one batch is computed.", "s", _quantiles("probity_compute_seconds")),
        Panel(
            "Examples per batch",
            "Larger batches mean more throughput, and that requests wait for each other.",
            "short",
            _quantiles("probity_batch_rows"),
        ),
        Panel(
            "Oldest running batch",
            "For how long the oldest batch has been computed; it grows without end where computation hangs.",
            "s",
            (Query(f"max by (instance) (probity_oldest_batch_seconds{{{JOB}}})", "{{instance}}"),),
        ),
        Panel(
            "Degraded answers",
            "Share of examples that the plain network answered alone, without an uncertainty, because of a long queue.",
            "percentunit",
            (
                Query(
                    or_zero_by_version(
                        share_by_version(
                            by_version("increase", "probity_predictions_total", WINDOW, 'degraded="true"'),
                            by_version("increase", "probity_predictions_total"),
                        )
                    ),
                    "v{{version}}",
                ),
            ),
            most=1.0,
        ),
    ),
)
PROCESSES = Row(
    "Processes and models",
    (
        Panel(
            "Memory",
            "Resident memory of the worker processes of each instance.",
            "bytes",
            (Query(f"max by (instance) (probity_process_memory_bytes{{{JOB}}})", "{{instance}}"),),
        ),
        Panel(
            "Processor time",
            "Processors in use by the worker processes of each instance.",
            "short",
            (
                Query(
                    f"sum by (instance) (rate(probity_process_cpu_seconds_total{{{JOB}}}[{RATE}]))",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Bundles loaded and refused",
            "Loads within the window, by outcome; a refused bundle is named in the log.",
            "short",
            (
                Query(
                    f"sum by (model, outcome) (increase(probity_model_loads_total{{{JOB}}}[{WINDOW}]))",
                    "{{model}} {{outcome}}",
                ),
            ),
        ),
        Panel(
            "Stale bundles",
            "Models of which a newer bundle was refused (1): an older one still serves, or none.",
            "short",
            (Query(f"max by (model) (probity_model_stale{{{JOB}}})", "{{model}}"),),
        ),
        Panel(
            "Instances that serve each version",
            "How many instances have loaded a version of the model.",
            "short",
            (Query(SERVED_VERSIONS.replace("max", "count", 1), "v{{version}}"),),
        ),
        Panel(
            "Lost lines of the audit trail",
            "Lines per second that could not be written to the audit file.",
            "cps",
            (
                Query(
                    f"sum by (instance) (rate(probity_audit_lines_lost_total{{{JOB}}}[{RATE}]))",
                    "{{instance}}",
                ),
            ),
        ),
    ),
)
HEALTH = Dashboard(
    "health",
    "Probity: service health",
    "Does the service keep up, and are the models that it serves those that it should serve?",
    (TRAFFIC, COMPUTATION, PROCESSES),
)
