"""The row of panels on labels that came after the answers, by `POST /feedback`.

Accuracies and errors have no value without labels, since 0 would be a wrong one.
"""

from docs.dashboards.panels import Panel, Query, Row
from docs.dashboards.queries import MODEL, WINDOW, by_version


def _labelled(name: str, decisions: str = "") -> str:
    """Labelled examples by version, or a sum over them."""
    return by_version("increase", f"demur_feedback_{name}_total", more=decisions)


def _accuracy(decision: str) -> str:
    """The share of right answers among those; no value without labels."""
    only = f'decision="{decision}"'
    return f"{_labelled('correct', only)} / ({_labelled('examples', only)} > 0)"


def _estimated(decision: str) -> str:
    """The accuracy to be expected by the confidences of the answers; no value without answers."""
    only = 'decision="accepted"' if decision == "accepted" else ""
    confidence, examples = (by_version("increase", f"demur_decided_{one}_total", more=only) for one in PARTS)
    excess = f'max by (version) (demur_held_out_confidence_excess{{{MODEL}, decision="{decision}"}})'
    return f"clamp({confidence} / ({examples} > 0) - {excess}, 0, 1)"


def _held_out(end: str) -> str:
    return f'max by (version) (demur_held_out_accuracy_{end}{{{MODEL}, decision="accepted"}})'


def _calibration_error() -> str:
    """sum_b |right in b - sum of confidences in b| / examples over bins b; no value without labels."""
    right, confidence = (
        f"sum by (version, confidence) (increase(demur_feedback_bin_{name}_total{{{MODEL}}}[{WINDOW}]))"
        for name in ("correct", "confidence")
    )
    return f"sum by (version) (abs({right} - {confidence})) / ({_labelled('examples')} > 0)"


PARTS = ("confidence", "examples")
LABELS = Row(
    "Labels of $model's answers that came later",
    (
        Panel(
            "Accuracy of labelled examples",
            "Share of right answers (regression: of intervals that hold the truth), and what accepted should reach.",
            "percentunit",
            (
                Query(_accuracy("accepted"), "v{{version}} accepted"),
                Query(_accuracy("rejected"), "v{{version}} rejected"),
                Query(f"max by (version) (demur_expected_accuracy{{{MODEL}}})", "v{{version}} accepted, by design"),
                Query(_estimated("accepted"), "v{{version}} accepted, estimated"),
            ),
            most=1.0,
        ),
        Panel(
            "Estimated accuracy",
            "Without labels, by how sure answers are; and the 99% interval of the accepted among the held-out data.",
            "percentunit",
            (
                Query(_estimated("accepted"), "v{{version}} accepted"),
                Query(_estimated("all"), "v{{version}} all"),
                Query(_held_out("low"), "v{{version}} held out, at least"),
                Query(_held_out("high"), "v{{version}} held out, at most"),
            ),
            most=1.0,
        ),
        Panel(
            "Evidence against the expected accuracy",
            "Log10 of the test martingale, the mean over instances; from 2 on, chance no longer explains it.",
            "short",
            (Query(f"log10(avg by (version) (demur_accuracy_martingale{{{MODEL}}}))", "v{{version}}"),),
            least=None,
        ),
        Panel(
            "Expected calibration error",
            "Mean distance between confidence and share of right answers, over ten bins of the confidence (0 to 1).",
            "percentunit",
            (Query(_calibration_error(), "v{{version}}"),),
            most=1.0,
        ),
        Panel(
            "Labelled examples",
            "On how many labels the panels of this row rest, by what was decided about the example.",
            "short",
            (
                Query(
                    f"sum by (version, decision) (increase(demur_feedback_examples_total{{{MODEL}}}[{WINDOW}]))",
                    "v{{version}} {{decision}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Root mean squared error",
            "Of a regression's means on labelled examples, in the target's units; 0 for a classification.",
            "short",
            (
                Query(
                    f"sqrt({_labelled('squared_error')} / ({_labelled('examples')} > 0))",
                    "v{{version}}",
                ),
            ),
        ),
    ),
)
