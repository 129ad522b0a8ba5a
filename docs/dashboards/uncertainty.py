"""The dashboard that answers how sure the model is, and what it rejects."""

from docs.dashboards.panels import Dashboard, Panel, Query, Row
from docs.dashboards.queries import (
    MODEL,
    RATE,
    WINDOW,
    ZERO,
    by_version,
    or_zero_by_version,
    quantile,
    served,
    share_by_version,
)

LEVELS = ((0.05, "p05"), (0.25, "p25"), (0.5, "p50"), (0.75, "p75"), (0.95, "p95"))
REFERENCE_LEVELS = ((0.25, "p25"), (0.5, "p50"), (0.75, "p75"))
CLASSES_SHOWN = 12
JUDGED = by_version("increase", "probity_predictions_total", WINDOW, 'degraded="false"')


def _gauge(series: str, more: str = "") -> str:
    return f"max by (version) ({series}{{{MODEL}{more}}})"


def _quantiles(histogram: str) -> tuple[Query, ...]:
    return tuple(Query(quantile(level, histogram), f"v{{{{version}}}} {name}") for level, name in LEVELS)


def _reference_quantiles(quantity: str) -> tuple[Query, ...]:
    """As the bundle has them."""
    return tuple(
        Query(
            _gauge("probity_reference", f', quantity="{quantity}", level="{level:g}"'),
            f"v{{{{version}}}} reference {name}",
        )
        for level, name in REFERENCE_LEVELS
    )


def _reference_p_values() -> tuple[Query, ...]:
    shares = served("ood_p_value").reference_shares
    return tuple(
        Query(f"histogram_quantile({level:g}, {shares})", f"v{{{{version}}}} reference {name}")
        for level, name in REFERENCE_LEVELS
    )


def _share_per_class() -> str:
    """Rejected examples of a class by all of that class; a class without examples has 0."""
    rejected = f"sum by (version, label) (increase(probity_rejections_total{{{MODEL}}}[{WINDOW}]))"
    matchers = f'{MODEL}, degraded="false"'
    judged = f"sum by (version, label) (increase(probity_predictions_total{{{matchers}}}[{WINDOW}]))"
    return f"topk by (version) ({CLASSES_SHOWN}, {rejected} / clamp_min({judged}, {ZERO}))"


REJECTION = Row(
    "What $model rejects",
    (
        Panel(
            "Reject rate",
            "Share of examples flagged as out of distribution, beside the rate by design and its bound at 99.9%.",
            "percentunit",
            (
                Query(
                    share_by_version(by_version("increase", "probity_rejections_total"), JUDGED),
                    "v{{version}} rejected",
                ),
                Query(_gauge("probity_false_reject_rate"), "v{{version}} by design"),
                Query(_gauge("probity_false_reject_rate_bound"), "v{{version}} by design, at most"),
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
                        by_version("increase", "probity_inputs_out_of_range_total"),
                        by_version("increase", "probity_predictions_total"),
                    ),
                    "v{{version}}",
                ),
            ),
        ),
        Panel(
            "Examples by version",
            "Examples answered per second; of a canary, the share that it takes.",
            "cps",
            (Query(or_zero_by_version(by_version("rate", "probity_predictions_total", RATE)), "v{{version}}"),),
            stacked=True,
        ),
        Panel(
            "Examples in each bin of the p-value",
            "Share of examples in each bin; on unchanged data every bin keeps the share that it has in the reference.",
            "percentunit",
            (Query(served("ood_p_value").bins, "v{{version}} up to {{le}}"),),
            stacked=True,
        ),
        Panel(
            "Examples in each bin of the score",
            "Share of examples in each bin; on unchanged data every bin keeps the share that it has in the reference.",
            "percentunit",
            (Query(served("ood_score").bins, "v{{version}} up to {{le}}"),),
            stacked=True,
        ),
        Panel(
            "Bins of the p-value in the reference",
            "Share of the calibration data in each bin of the p-value.",
            "percentunit",
            (Query(served("ood_p_value").reference_bins, "v{{version}} up to {{le}}, reference"),),
            stacked=True,
        ),
        Panel(
            "Bins of the score in the reference",
            "Share of the calibration data in each bin of the score.",
            "percentunit",
            (Query(served("ood_score").reference_bins, "v{{version}} up to {{le}}, reference"),),
            stacked=True,
        ),
    ),
)
UNCERTAINTY_ROW = Row(
    "How sure $model is, beside the calibration data",
    (
        Panel(
            "Out-of-distribution score",
            "Quantiles of the score, beside those of the calibration data; above the threshold an example is rejected.",
            "short",
            (
                *_quantiles("probity_ood_score"),
                Query(_gauge("probity_reject_threshold"), "v{{version}} threshold"),
                *_reference_quantiles("ood_score"),
            ),
        ),
        Panel(
            "Conformal p-value",
            "Quantiles of the p-value, beside those of the calibration data; small ones mean unusual inputs.",
            "percentunit",
            (*_quantiles("probity_ood_p_value"), *_reference_p_values()),
            most=1.0,
        ),
        Panel(
            "Functional variance",
            "Quantiles of the largest output variance of an example, beside those of the calibration data.",
            "short",
            (*_quantiles("probity_functional_variance"), *_reference_quantiles("functional_variance")),
            least=None,
            log_scale=True,
        ),
        Panel(
            "Normalised entropy",
            "Quantiles of the predictive entropy over log K (0 sure, 1 uniform); a classifier's only.",
            "percentunit",
            (*_quantiles("probity_normalised_entropy"), *_reference_quantiles("normalised_entropy")),
            most=1.0,
        ),
        Panel(
            "Top probability",
            "Quantiles of the probability of the predicted class; a classifier's only.",
            "percentunit",
            (*_quantiles("probity_top_probability"), *_reference_quantiles("top_probability")),
            most=1.0,
        ),
    ),
)
UNCERTAINTY = Dashboard(
    "uncertainty",
    "Probity: uncertainty and rejection",
    "How sure is the model, what does it reject, and does a new version differ?",
    (REJECTION, UNCERTAINTY_ROW),
)
