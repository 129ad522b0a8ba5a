"""What an image experiment comes to: the main rows beside the controls, and caveats."""

from statistics import fmean
from typing import Any

from paper.images.baselines.diagonal_laplace import GRID
from paper.images.summary import (
    ADDED,
    BLOCKS,
    CONTROLS,
    DEFAULT,
    OURS_BY_PAPER,
    PRODUCTS_CHOICE,
    RANDOM,
    SMALL_SUBNETWORK,
    SMALL_TEMPERED,
    STRONG,
    TEMPERED_ENSEMBLE,
)
from paper.page.markdown import listed, number, signed, table

MARK = "\\*"
SAMPLED, LINEARISED, ENSEMBLE = "diagonal Laplace, sampled", "diagonal Laplace, linearised", "ensemble of 5"
OURS = (OURS_BY_PAPER, RANDOM, "ours, novelty-sampling", "last layer", PRODUCTS_CHOICE, BLOCKS)
AT_THE_DEFAULT = (SMALL_TEMPERED, SMALL_SUBNETWORK, ADDED, DEFAULT)
MAIN = ("MAP", ENSEMBLE, "IVON", *CONTROLS, *OURS, *AT_THE_DEFAULT)
SAW_SOME = f"{MARK} saw noise and blur while choosing: compare by the kinds that it had not seen.\n"
SAW_ALL = f"{MARK} saw rotation by 45 and 90 degrees while choosing, or while sharing the budget.\n"
UNDERTRAINED = 1.15  # times the plain network's errors
MOST_PASSES = 2


def usual(result: dict[str, Any], label: str) -> float:
    """Log-likelihood without a shift."""
    return float(result["summary"]["rows"][label]["shifts"]["0"]["log_likelihood"]["mean"])


def under_shift(result: dict[str, Any], label: str) -> float:
    """Mean log-likelihood over the strong shifts."""
    shifts = result["summary"]["rows"][label]["shifts"]
    return fmean(shifts[str(shift)]["log_likelihood"]["mean"] for shift in STRONG[result["published"]])


def _unseen(result: dict[str, Any], label: str) -> float:
    """The same over the kinds that no strategy saw."""
    unseen = result["summary"]["rows"][label]["unseen_log_likelihood"]
    return fmean(unseen[str(shift)]["mean"] for shift in STRONG[result["published"]])


def what_it_comes_to(result: dict[str, Any]) -> str:
    """The main rows beside the controls, means over the strong shifts; baselines that the size does not do justice."""
    rows = result["summary"]["rows"]
    labels = [label for label in MAIN if label in rows]
    (foreign,) = next(iter(rows.values()))["auroc"]
    seen = any(rows[label]["seen"] for label in labels)
    unseen = seen and all(rows[label]["unseen_log_likelihood"] for label in labels)
    found = []
    for label in labels:
        cells = [f"{rows[label]['price']['mean']:.3g}", number(usual(result, label), 3)]
        cells += [number(under_shift(result, label), 3), *([number(_unseen(result, label), 3)] if unseen else [])]
        found.append([marked(label, rows[label]), *cells, number(rows[label]["auroc"][foreign]["mean"], 3)])
    head = ["", "passes", "log-likelihood without a shift", "under strong shift", *(["unseen kinds"] if unseen else [])]
    note = [SAW_SOME if unseen else SAW_ALL] if seen else []
    title = "**What it comes to**: means over the strong shifts.\n"
    return "\n".join([title, table([*head, f"AUROC {foreign}"], found), *note, *_caveats(result)])


def marked(label: str, row: dict[str, Any]) -> str:
    """With a mark where the strategy saw some of these shifts while choosing."""
    return label + (MARK if row["seen"] else "")


def _caveats(result: dict[str, Any]) -> list[str]:
    """Rows whose settings lie at an edge, and what became of the second mean."""
    rows, lines = result["summary"]["rows"], []
    runs = [run["methods"] for run in result["runs"]]
    linearised = [run[LINEARISED]["prior_precision"] for run in runs if LINEARISED in run]
    at_edge = sum(value >= GRID[-1] * (1 - 1e-9) for value in linearised)
    if at_edge:
        lines.append(
            f"* {LINEARISED}: in {at_edge} of {len(linearised)} runs the best lambda is the largest one tried, "
            "so that this row is next to MAP."
        )
    if SAMPLED in rows:
        chosen = [f"{run[SAMPLED]['prior_precision']:,.0f}" for run in runs if SAMPLED in run]
        lines.append(
            f"* {SAMPLED}: the best lambda on held-out images is {listed(chosen)}; they hardly tell one from another, "
            "and with a large one the row is next to MAP."
        )
    if "IVON" in rows and _error(rows, "IVON") > UNDERTRAINED * _error(rows, "MAP"):
        lines.append(
            f"* IVON learnt less than MAP in as many epochs: {100 * _error(rows, 'IVON'):.1f} % errors without a "
            f"shift, and MAP {100 * _error(rows, 'MAP'):.1f} %. A comparison with it says little here."
        )
    if PRODUCTS_CHOICE in rows:
        weights = [run[PRODUCTS_CHOICE]["explanation"].split(":")[0] for run in runs if PRODUCTS_CHOICE in run]
        lines.append(f"* {PRODUCTS_CHOICE}: chose {'; '.join(dict.fromkeys(weights))}.")
    if set(rows) >= {BLOCKS, ENSEMBLE, TEMPERED_ENSEMBLE}:
        lines.append(_second_mean(result))
    return [*lines, ""]


def _second_mean(result: dict[str, Any]) -> str:
    rows, strong = result["summary"]["rows"], STRONG[result["published"]]

    def above(label: str) -> int:
        found = (
            [rows[one]["shifts"][str(shift)]["log_likelihood"]["mean"] for one in (BLOCKS, label)] for shift in strong
        )
        return sum(own > other for own, other in found)

    gains = {label: usual(result, BLOCKS) - usual(result, label) for label in (ENSEMBLE, TEMPERED_ENSEMBLE)}
    price = rows[BLOCKS]["price"]["mean"]
    meets = above(ENSEMBLE) == len(strong) and gains[ENSEMBLE] >= 0 and price < MOST_PASSES
    compared = "; ".join(
        f"above the {label} at {above(label)} of {len(strong)} strong shifts, {signed(gain)} nats without a shift"
        for label, gain in gains.items()
    )
    return (
        f"* {BLOCKS}: {compared}; {price:.3g} passes. To become a part of bundles it has to be above the plain "
        f"ensemble with and without a shift, at under {MOST_PASSES} passes: it is {'' if meets else 'not '}so here."
    )


def _error(rows: dict[str, Any], label: str) -> float:
    return float(rows[label]["shifts"]["0"]["error"]["mean"])
