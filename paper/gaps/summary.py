"""Means and standard deviations over the splits of a table, and over the draws of a toy."""

from collections.abc import Sequence
from typing import Any

from paper.gaps.quality import PARTS
from paper.images.summary import spread

BASELINE = "noise alone"
MEASURES = "log_likelihood", "coverage", "width", "rejected"
Runs = Sequence[dict[str, Any]]


def summarise(runs: Runs) -> dict[str, Any]:
    """Data set -> how hard its gap is, and method -> measures by part; gains in log-likelihood over the noise alone are
    paired over the splits."""
    names = dict.fromkeys(run["problem"] for run in runs)
    return {name: _problem([run for run in runs if run["problem"] == name]) for name in names}


def _problem(runs: Runs) -> dict[str, Any]:
    labels = dict.fromkeys(label for run in runs for label in run["methods"])
    harder = [_error(run, "gap") / _error(run, "ordinary") for run in runs]
    return {
        "splits": len(runs),
        "squared_error_in_the_gap": spread(harder),
        "methods": {
            label: _method([run["methods"] for run in runs if label in run["methods"]], label) for label in labels
        },
    }


def _error(run: dict[str, Any], part: str) -> float:
    return float(run["methods"][BASELINE][part]["squared_error"])


def _method(found: Sequence[dict[str, Any]], label: str) -> dict[str, Any]:
    def over(part: str, measure: str) -> dict[str, float | None] | None:
        values = [one[label][part][measure] for one in found]
        return None if None in values else spread(values)

    gains = {part: spread([_worth(one, label, part) - _worth(one, BASELINE, part) for one in found]) for part in PARTS}
    aurocs = [one[label]["auroc"] for one in found]
    facts = [one[label]["facts"] for one in found]
    return {
        **{part: {measure: over(part, measure) for measure in MEASURES} for part in PARTS},
        "gain": gains,
        "auroc": None if None in aurocs else spread(aurocs),
        "prior_variances": [fact["prior_variance"] for fact in facts if "prior_variance" in fact],
    }


def _worth(methods: dict[str, Any], label: str, part: str) -> float:
    return float(methods[label][part]["log_likelihood"])
