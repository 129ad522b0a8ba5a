"""Rows of an image experiment whose settings lie at an edge."""

from typing import Any

from benchmarks.core.markdown import listed
from paper.images.baselines.diagonal_laplace import GRID

SAMPLED, LINEARISED = "diagonal Laplace, sampled", "diagonal Laplace, linearised"
UNDERTRAINED = 1.15  # times the plain network's errors


def caveats(result: dict[str, Any]) -> list[str]:
    """One line each."""
    rows, lines = result["summary"]["rows"], []
    runs = [run["methods"] for run in result["runs"]]
    linearised = [run[LINEARISED]["prior_precision"] for run in runs if LINEARISED in run]
    if at_edge := sum(value >= GRID[-1] * (1 - 1e-9) for value in linearised):
        lines.append(
            f"* {LINEARISED}: in {at_edge} of {len(linearised)} runs the best lambda is the largest one tried, "
            "so that it is next to MAP."
        )
    if SAMPLED in rows:
        chosen = [f"{run[SAMPLED]['prior_precision']:,.0f}" for run in runs if SAMPLED in run]
        lines.append(
            f"* {SAMPLED}: the best lambda on held-out images is {listed(chosen)}; with a large one it is next to MAP."
        )
    if "IVON" in rows and _error(rows, "IVON") > UNDERTRAINED * _error(rows, "MAP"):
        lines.append(
            f"* IVON learnt less than MAP in as many epochs: {100 * _error(rows, 'IVON'):.1f} % errors without a "
            f"shift, and MAP {100 * _error(rows, 'MAP'):.1f} %. A comparison says little."
        )
    return lines


def _error(rows: dict[str, Any], label: str) -> float:
    return float(rows[label]["shifts"]["0"]["error"]["mean"])
