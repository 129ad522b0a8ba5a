"""The dashboard that answers whether inputs are still like the calibration data, and answers as right as expected."""

from docs.dashboards.labels import LABELS
from docs.dashboards.panels import Dashboard, Panel, Query, Row
from docs.dashboards.queries import MODEL, WINDOW, ZERO, or_zero_by_version, served

CRITICAL = 1.63  # chance alone exceeds it with a probability of 1 %
CLASSES_SHOWN = 12
DAY = "1d"


def _distance(title: str, quantity: str) -> Panel:
    distribution = served(quantity)
    return Panel(
        title,
        "Largest difference between the cumulative shares of served examples and of the calibration data (0 to 1).",
        "percentunit",
        (
            Query(or_zero_by_version(distribution.kolmogorov_smirnov), "v{{version}}"),
            Query(distribution.chance(CRITICAL), "v{{version}} 1% by chance"),
        ),
        most=1.0,
    )


def _stability(title: str, quantity: str) -> Panel:
    return Panel(
        title,
        "Sum of (s - r) ln(s / r) over bins; by custom, from 0.1 a shift is moderate and from 0.25 large.",
        "short",
        (Query(or_zero_by_version(served(quantity).population_stability_index), "v{{version}}"),),
    )


def class_shares(window: str) -> str:
    """Share of each predicted class among all examples of a version."""
    of = f"increase(probity_predictions_total{{{MODEL}}}[{window}])"
    return f"sum by (version, label) ({of}) / on (version) group_left () clamp_min(sum by (version) ({of}), {ZERO})"


REFERENCE_CLASSES = f"max by (version, label) (probity_reference_class_share{{{MODEL}}})"


EVIDENCE = Row(
    "Evidence against unchanged inputs to $model",
    (
        Panel(
            "Evidence of drift",
            "Log10 of the capital of a gambler who bets on drift; from 2 on, chance no longer explains it.",
            "short",
            (Query(f"max by (version) (probity_drift_evidence{{{MODEL}}})", "v{{version}}"),),
            least=None,
        ),
        Panel(
            "Drift alarms",
            "How often the capital reached its limit within the window; without drift, 1 service in 100 ever has one.",
            "short",
            (
                Query(
                    f"sum by (version) (increase(probity_drift_alarms_total{{{MODEL}}}[{WINDOW}]))",
                    "v{{version}}",
                ),
            ),
        ),
        Panel(
            "Examples within the window",
            "On how many examples the distances rest; below a hundred they say little.",
            "short",
            (Query(served("ood_p_value").count, "v{{version}}"),),
        ),
    ),
)
DISTANCES = Row(
    "Distance of $model's outputs from the calibration data",
    (
        _distance("Kolmogorov-Smirnov distance of the p-value", "ood_p_value"),
        _distance("Kolmogorov-Smirnov distance of the score", "ood_score"),
        _stability("Population stability index of the p-value", "ood_p_value"),
        _stability("Population stability index of the score", "ood_score"),
    ),
)
CLASSES = Row(
    "Classes that $model predicts",
    (
        Panel(
            "Predicted classes",
            f"Share of each predicted class within the window: the {CLASSES_SHOWN} most frequent ones.",
            "percentunit",
            (Query(f"topk by (version) ({CLASSES_SHOWN}, {class_shares(WINDOW)})", "v{{version}} {{label}}"),),
            most=1.0,
        ),
        Panel(
            "Predicted classes over the last day",
            f"Share of each predicted class within the last day: the {CLASSES_SHOWN} most frequent ones.",
            "percentunit",
            (Query(f"topk by (version) ({CLASSES_SHOWN}, {class_shares(DAY)})", "v{{version}} {{label}}"),),
            most=1.0,
        ),
        Panel(
            "Change of the predicted classes",
            "Total variation distance between the shares of the window and of the last day: 0 unchanged, 1 disjoint.",
            "percentunit",
            (
                Query(
                    f"0.5 * sum by (version) (abs({class_shares(WINDOW)} - {class_shares(DAY)}))"
                    f" * on (version) ({served('ood_p_value').count} > bool 0)",
                    "v{{version}}",
                ),
            ),
            most=1.0,
        ),
        Panel(
            "Predicted classes against the calibration data",
            "Total variation distance between the window's shares and those of the calibration data, 0 to 1.",
            "percentunit",
            (
                Query(
                    or_zero_by_version(
                        f"0.5 * sum by (version) (abs({class_shares(WINDOW)} - on (version, label) "
                        f"{REFERENCE_CLASSES})) * on (version) ({served('ood_p_value').count} > bool 0)"
                    ),
                    "v{{version}}",
                ),
            ),
            most=1.0,
        ),
    ),
)
DRIFT = Dashboard(
    "drift",
    "Probity: drift and labels",
    "Are the inputs still like those that the model was calibrated on, and answers as right as expected?",
    (EVIDENCE, DISTANCES, CLASSES, LABELS),
)
