"""Means and standard errors over splits."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paper.tables.claim import METHODS

Runs = Sequence[dict[str, Any]]


def summarise(runs: Runs) -> dict[str, Any]:
    """Table and kind of split -> network -> method -> one entry a size, from 0 (MAP) to D (full covariance)."""
    problems = dict.fromkeys(run["problem"] for run in runs)
    return {problem: _networks([run for run in runs if run["problem"] == problem]) for problem in problems}


def _networks(runs: Runs) -> dict[str, Any]:
    names = dict.fromkeys(run["network"] for run in runs)
    return {name: _network([run for run in runs if run["network"] == name]) for name in names}


def _network(runs: Runs) -> dict[str, Any]:
    """Each method begins at the MAP and ends at the full covariance, which all of them share."""
    map_only = {"S": 0} | spread([run["map"] for run in runs])
    full = _entry(runs, "full", runs[0]["weights"])
    sizes = sorted({row["S"] for row in runs[0]["rows"] if row["method"] == METHODS[0]})
    found = {
        method: [map_only, *(_entry(runs, method, size) for size in sizes), full]
        for method in (METHODS if sizes else ())
    }
    return {
        "weights": runs[0]["weights"],
        "splits": len(runs),
        "full": [map_only, full],
        **found,
    }


def _entry(runs: Runs, method: str, size: int) -> dict[str, Any]:
    rows = [row for run in runs for row in run["rows"] if (row["method"], row["S"]) == (method, size)]
    return {"S": size} | spread([row["test"] for row in rows])


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, and its standard error where there is more than one value."""
    error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "stderr": error}
