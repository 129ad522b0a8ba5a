"""The paper's claim, by paired tests: a subnetwork of a large network beats all of a small one of as many weights.

The unit is a split: the difference in mean test log-likelihood, averaged over the pairs of networks compared. Training
sets of splits of one table overlap, so that these units are not independent, and p-values are too small rather than
too large. The stricter test, "pooled_over_tables", has one unit a table and kind of split: the mean over its splits.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

LEVEL = 0.05
METHODS = "wasserstein", "wasserstein, live", "gradient", "leverage", "random"
MAP = "MAP"
STATEMENT = (
    "a subnetwork of S weights of a larger network has a higher test log-likelihood than the full covariance of a "
    "smaller network of S weights"
)
Runs = Sequence[dict[str, Any]]


def paired(differences: Sequence[float]) -> dict[str, Any]:
    """Mean of paired differences, and the two-sided p-value of Wilcoxon's signed-rank test.

    The p-value is None for fewer than two differences, or where all are equal.
    """
    values = np.array(differences, dtype=np.float64)
    comparable = len(values) > 1 and np.ptp(values) > 0
    return {
        "units": len(values),
        "mean_difference": float(values.mean()),
        "positive": int((values > 0).sum()),
        "p_wilcoxon": float(stats.wilcoxon(values).pvalue) if comparable else None,
    }


def verdict(test: dict[str, Any]) -> str:
    """ "holds", "contradicted" or "undecided", by Wilcoxon's signed-rank test at 5 %."""
    if test["p_wilcoxon"] is None or test["p_wilcoxon"] >= LEVEL:
        return "undecided"
    return "holds" if test["mean_difference"] > 0 else "contradicted"


def claim(runs: Runs) -> dict[str, Any]:
    """Method -> the tests of the largest network against each smaller one, over splits and over tables."""
    chosen = [pair for pair in pairs(runs) if pair[0]["weights"] == largest_of(pair[0], runs)]
    return {method: _differences(chosen, method) for method in (*METHODS, MAP)}


def largest_of(run: dict[str, Any], runs: Runs) -> int:
    """D of the largest network of the same table."""
    return max(int(other["weights"]) for other in runs if other["problem"] == run["problem"])


def pairs(runs: Runs) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
    """Each network with each smaller one on the same split."""
    for run in runs:
        for other in runs:
            same = (run["problem"], run["split"]) == (other["problem"], other["split"])
            if same and other["weights"] < run["weights"]:
                yield run, other


def tested(run: dict[str, Any], method: str, size: int) -> float:
    """Of one row; "MAP" has no weights with a posterior, whatever the size."""
    if method == MAP:
        return float(run["map"])
    return float(next(row["test"] for row in run["rows"] if (row["method"], row["S"]) == (method, size)))


def _differences(chosen: Iterable[tuple[dict[str, Any], dict[str, Any]]], method: str) -> dict[str, Any]:
    """Over all splits, and over tables: units are splits of tables, or tables."""
    units: dict[tuple[str, int], list[float]] = {}
    for large, small in chosen:
        size = small["weights"]
        gain = tested(large, method, size) - tested(small, "full", size)
        units.setdefault((large["problem"], large["split"]), []).append(gain)
    means = {unit: float(np.mean(values)) for unit, values in units.items()}
    by_problem: dict[str, list[float]] = {}
    for (problem, _), value in means.items():
        by_problem.setdefault(problem, []).append(value)
    pooled = paired(list(means.values()))
    tables = paired([float(np.mean(values)) for values in by_problem.values()])
    return {
        "pooled": pooled | {"verdict": verdict(pooled)},
        "pooled_over_tables": tables | {"verdict": verdict(tables)},
    }
