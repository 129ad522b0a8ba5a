"""The dashboard that answers whether inputs are still like the calibration data, and answers as right as expected."""

from docs.dashboards.labels import LABELS
from docs.dashboards.panels import Dashboard, Panel, Query, Row
from docs.dashboards.queries import MODEL, WINDOW, ZERO, by_version

CLASSES_SHOWN = 12
DAY = "1d"


def class_shares(window: str) -> str:
    """Share of each predicted class among all examples of a version."""
    of = f"increase(demur_predictions_total{{{MODEL}}}[{window}])"
    return f"sum by (version, label) ({of}) / on (version) group_left () clamp_min(sum by (version) ({of}), {ZERO})"


INPUTS = Row(
    "Inputs and predicted classes of $model",
    (
        Panel(
            "Evidence of drift",
            "Log10 of the test martingale, the mean over instances; an alarm, a little above 2, sets it back. And "
            "the alarms.",
            "short",
            (
                Query(f"log10(avg by (version) (10 ^ demur_drift_evidence{{{MODEL}}}))", "v{{version}} evidence"),
                Query(by_version("increase", "demur_drift_alarms_total"), "v{{version}} alarms"),
            ),
            least=None,
        ),
        Panel(
            "Predicted classes",
            f"Share of each predicted class within the window: the {CLASSES_SHOWN} most frequent ones. Of more than "
            "100 classes, those count that held-out examples got most often, and the others as one.",
            "percentunit",
            (Query(f"topk by (version) ({CLASSES_SHOWN}, {class_shares(WINDOW)})", "v{{version}} {{label}}"),),
            most=1.0,
        ),
        Panel(
            "Change of the predicted classes",
            "Total variation distance between the shares of the window and of the last day: 0 unchanged, 1 disjoint.",
            "percentunit",
            (
                Query(
                    f"0.5 * sum by (version) (abs({class_shares(WINDOW)} - {class_shares(DAY)}))"
                    f" * on (version) ({by_version('increase', 'demur_predictions_total')} > bool 0)",
                    "v{{version}}",
                ),
            ),
            most=1.0,
        ),
    ),
)
DRIFT = Dashboard(
    "drift",
    "Demur: drift and labels",
    "Are the inputs still like those that the model was calibrated on, and answers as right as expected?",
    (INPUTS, LABELS),
)
