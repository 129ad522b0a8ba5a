"""The dashboard that answers how sure the model is, and what it rejects."""

from docs.dashboards.panels import Dashboard, Panel, Query, Row
from docs.dashboards.queries import (
    MODEL,
    RATE,
    WINDOW,
    ZERO,
    by_version,
    or_none,
    or_zero_by_version,
    quantile,
    share_by_version,
)

LEVELS = ((0.05, "p05"), (0.25, "p25"), (0.5, "p50"), (0.75, "p75"), (0.95, "p95"))
CLASSES_SHOWN = 12
JUDGED = by_version("increase", "demur_predictions_total", WINDOW)


def _gauge(series: str) -> str:
    return f"max by (version) ({series}{{{MODEL}}})"


def _quantiles(histogram: str) -> tuple[Query, ...]:
    return tuple(Query(quantile(level, histogram), f"v{{{{version}}}} {name}") for level, name in LEVELS)


def _share_per_class() -> str:
    """Rejected examples of a class by all of that class; a class without examples has 0."""
    rejected = f"sum by (version, label) (increase(demur_rejections_total{{{MODEL}}}[{WINDOW}]))"
    judged = f"sum by (version, label) (increase(demur_predictions_total{{{MODEL}}}[{WINDOW}]))"
    return f"topk by (version) ({CLASSES_SHOWN}, {rejected} / clamp_min({judged}, {ZERO}))"


def _share_per_mistake() -> str:
    named = f"sum by (version, mistake) (increase(demur_mistakes_total{{{MODEL}}}[{WINDOW}]))"
    return f"{named} / on (version) group_left clamp_min({JUDGED}, {ZERO})"


def _in_shadow(series: str) -> str:
    return by_version("increase", f"demur_shadow_{series}_total")


REJECTION = Row(
    "What $model rejects",
    (
        Panel(
            "Reject rate",
            "Share of examples flagged as out of distribution, beside the rate by design and its bound at 99.9%.",
            "percentunit",
            (
                Query(
                    share_by_version(by_version("increase", "demur_rejections_total"), JUDGED),
                    "v{{version}} rejected",
                ),
                Query(_gauge("demur_false_reject_rate"), "v{{version}} by design"),
                Query(_gauge("demur_false_reject_rate_bound"), "v{{version}} by design, at most"),
            ),
        ),
        Panel(
            "Reject rate by predicted class",
            f"Share of the examples of a class that are rejected: the {CLASSES_SHOWN} classes with the highest.",
            "percentunit",
            (Query(_share_per_class(), "v{{version}} {{label}}"),),
        ),
        Panel(
            "Inputs out of range",
            "Share of examples with values far outside those that the network was fitted on.",
            "percentunit",
            (
                Query(
                    share_by_version(
                        by_version("increase", "demur_inputs_out_of_range_total"),
                        by_version("increase", "demur_predictions_total"),
                    ),
                    "v{{version}}",
                ),
            ),
        ),
        Panel(
            "Named mistakes",
            "Share of examples that look like a mistake of the client, such as inverted colours, rejected or not.",
            "percentunit",
            (Query(or_zero_by_version(_share_per_mistake()), "v{{version}} {{mistake}}"),),
        ),
        Panel(
            "Examples by version",
            "Examples answered per second; of a canary, the share that it takes.",
            "cps",
            (Query(or_zero_by_version(by_version("rate", "demur_predictions_total", RATE)), "v{{version}}"),),
            stacked=True,
        ),
    ),
)
UNCERTAINTY_ROW = Row(
    "How sure $model is, beside the calibration data",
    (
        Panel(
            "Conformal p-value",
            "Quantiles of the p-value: on unchanged data p05 is 5%, p50 is 50%; small ones mean unusual inputs.",
            "percentunit",
            _quantiles("demur_ood_p_value"),
            most=1.0,
        ),
    ),
)
SHADOW = Row(
    "A version in the shadow of $model",
    (
        Panel(
            "What the shadow would change",
            "Shares of the compared examples that it answers otherwise, would reject as well, and would accept.",
            "percentunit",
            tuple(
                Query(
                    or_none(share_by_version(_in_shadow(series), _in_shadow("examples")), "version"),
                    f"v{{{{version}}}} {words}",
                )
                for series, words in (
                    ("changed", "another answer"),
                    ("newly_rejected", "rejected as well"),
                    ("newly_accepted", "accepted"),
                )
            ),
            most=1.0,
        ),
        Panel(
            "Examples compared with the shadow",
            "On how many examples the panel beside rests, and how many answers the shadow was too slow for or refused.",
            "short",
            (
                Query(
                    or_none(by_version("increase", "demur_shadow_examples_total"), "version"), "v{{version}} compared"
                ),
                Query(or_none(by_version("increase", "demur_shadow_lost_total"), "version"), "v{{version}} lost"),
            ),
        ),
    ),
)
UNCERTAINTY = Dashboard(
    "uncertainty",
    "Demur: uncertainty and rejection",
    "How sure is the model, what does it reject, and does a new version differ?",
    (REJECTION, UNCERTAINTY_ROW, SHADOW),
)
