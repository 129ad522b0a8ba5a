"""What an image experiment comes to: the main rows beside the controls, caveats, and where ours is above the others."""

from typing import Any

from benchmarks.experiments.paper.images.baselines.diagonal_laplace import GRID
from benchmarks.experiments.paper.images.summary import CONTROLS, OURS_BY_PAPER, PRODUCTS_CHOICE, STRONG
from docs.paper.markdown import listed, number, signed, table

UNITS = {"rotated_mnist": "°", "corrupted_cifar10": ""}
MARK = "\\*"
LINEARISED, BLOCKS, ENSEMBLE = (
    "diagonal Laplace, linearised",
    "five last blocks, each with a posterior",
    "ensemble of 5",
)
MAIN = (
    "MAP",
    ENSEMBLE,
    *CONTROLS,
    OURS_BY_PAPER,
    "ours, random",
    "ours, novelty-sampling",
    "last layer",
    PRODUCTS_CHOICE,
    BLOCKS,
)
UNDERTRAINED = 0.02  # of the error
MOST_PASSES = 2
LEAST_GAIN = 0.005  # nats: less is shown as none


def _usual(result: dict[str, Any], label: str) -> float:
    """Log-likelihood without a shift."""
    return float(result["summary"]["rows"][label]["shifts"]["0"]["log_likelihood"]["mean"])


def what_it_comes_to(result: dict[str, Any]) -> str:
    """The main rows beside the controls, means over the strong shifts; baselines that the size does not do justice."""
    rows, strong = result["summary"]["rows"], STRONG[result["published"]]
    (foreign,) = next(iter(rows.values()))["auroc"]
    found = []
    for label in (label for label in MAIN if label in rows):
        shifted = [rows[label]["shifts"][str(shift)]["log_likelihood"]["mean"] for shift in strong]
        cells = [
            f"{rows[label]['price']['mean']:.3g}",
            number(_usual(result, label), 3),
            number(sum(shifted) / len(shifted), 3),
        ]
        found.append([marked(label, rows[label]), *cells, number(rows[label]["auroc"][foreign]["mean"], 3)])
    head = ["", "passes", "log-likelihood without a shift", "under strong shift", f"AUROC {foreign}"]
    return "\n".join(["**What it comes to**: means over the strong shifts.\n", table(head, found), *_caveats(result)])


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
    if "IVON" in rows and (gap := _error(rows, "IVON") - _error(rows, "MAP")) > UNDERTRAINED:
        lines.append(
            f"* IVON learnt less than MAP in as many epochs: {100 * gap:.0f} % more errors without a shift. A "
            "comparison with it says little here."
        )
    if BLOCKS in rows and ENSEMBLE in rows:
        lines.append(_second_mean(result))
    return [*lines, ""]


def _second_mean(result: dict[str, Any]) -> str:
    rows, strong = result["summary"]["rows"], STRONG[result["published"]]
    better = [
        shift
        for shift in strong
        if rows[BLOCKS]["shifts"][str(shift)]["log_likelihood"]["mean"]
        > rows[ENSEMBLE]["shifts"][str(shift)]["log_likelihood"]["mean"]
    ]
    usual, price = _usual(result, BLOCKS) - _usual(result, ENSEMBLE), rows[BLOCKS]["price"]["mean"]
    meets = len(better) == len(strong) and usual >= 0 and price < MOST_PASSES
    return (
        f"* {BLOCKS}: above the ensemble at {len(better)} of {len(strong)} strong shifts, {signed(usual)} nats without "
        f"a shift, at {price:.3g} passes. To become a part of bundles it has to be above with and without a shift, at "
        f"under {MOST_PASSES}: it is {'' if meets else 'not '}so here."
    )


def _error(rows: dict[str, Any], label: str) -> float:
    return float(rows[label]["shifts"]["0"]["error"]["mean"])


def ordering(result: dict[str, Any], key: str, ours: str) -> str:
    """Where the log-likelihood of ours is above that of the other methods under strong shift, and in how many seeds."""
    unit, shifts = UNITS[result["published"]], STRONG[result["published"]]
    rows = result["summary"][key]
    lines = []
    for label in dict.fromkeys(one["against"] for one in rows):
        own = [one for one in rows if one["against"] == label]
        gains = [one["gain"]["mean"] for one in own]
        won, of = sum(one["won"] for one in own), sum(one["seeds"] for one in own)
        behind = [f"{one['shift']}{unit}" for one in own if one["gain"]["mean"] < LEAST_GAIN]
        verdict = f"not above at {listed(behind)}" if behind else "above at every shift"
        lines.append(
            f"* {label}: {verdict} ({signed(min(gains))} to {signed(max(gains))} nats; {won} of {of} pairs of a shift "
            f"and a seed); without a shift {signed(_usual(result, ours) - _usual(result, label))}."
        )
    if not rows:
        return ""
    unseen = ", over the kinds of corruption that it had not seen" if result["summary"]["rows"][ours]["seen"] else ""
    title = f"**Log-likelihood under strong shift** ({shifts[0]}{unit} to {shifts[-1]}{unit}{unseen}), `{ours}` against"
    return f"{title}\n\n" + "\n".join(lines) + "\n"
