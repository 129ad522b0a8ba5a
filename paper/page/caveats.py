"""Rows of an image experiment whose settings lie at an edge, and what became of the second mean."""

from typing import Any

from benchmarks.core.markdown import listed, signed
from paper.images.baselines.diagonal_laplace import GRID
from paper.images.summary import BLOCKS, ENSEMBLE, STRONG, TEMPERED_ENSEMBLE

SAMPLED, LINEARISED = "diagonal Laplace, sampled", "diagonal Laplace, linearised"
UNDERTRAINED = 1.15  # times the plain network's errors
MOST_PASSES = 2


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
    if set(rows) >= {BLOCKS, ENSEMBLE, TEMPERED_ENSEMBLE}:
        lines.append(_second_mean(result))
    return lines


def _second_mean(result: dict[str, Any]) -> str:
    rows, strong = result["summary"]["rows"], STRONG[result["published"]]

    def gain(label: str, shift: int) -> float:
        own, other = (rows[one]["shifts"][str(shift)]["log_likelihood"]["mean"] for one in (BLOCKS, label))
        return float(own - other)

    above = {label: sum(gain(label, shift) > 0 for shift in strong) for label in (ENSEMBLE, TEMPERED_ENSEMBLE)}
    price = rows[BLOCKS]["price"]["mean"]
    meets = above[ENSEMBLE] == len(strong) and gain(ENSEMBLE, 0) >= 0 and price < MOST_PASSES
    compared = "; ".join(f"above the `{label}` at {won} of {len(strong)} strong shifts" for label, won in above.items())
    return (
        f"* `{BLOCKS}`: {compared}; {signed(gain(ENSEMBLE, 0))} without a shift; {price:.3g} passes. A part of bundles "
        f"has to be above the ensemble everywhere, at under {MOST_PASSES} passes: it is {'' if meets else 'not '}so "
        "here."
    )


def _error(rows: dict[str, Any], label: str) -> float:
    return float(rows[label]["shifts"]["0"]["error"]["mean"])
