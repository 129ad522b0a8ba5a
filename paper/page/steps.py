"""What a temperature, a subnetwork and added weights each add to the one before, and what they reject."""

from typing import Any

import numpy as np

from paper.images.summary import (
    ADDED,
    DEFAULT,
    OURS_BY_PAPER,
    SMALL_SUBNETWORK,
    SMALL_TEMPERED,
    STRONG,
    TEMPERED,
)
from paper.page.markdown import number, signed, table
from paper.page.ordering import UNITS
from paper.questions.verdicts import half_width

STEPS = (
    ("the paper's subnetwork, over a temperature, 0.05 nats each", OURS_BY_PAPER, TEMPERED),
    ("a subnetwork, over a temperature, 0.005 nats each", SMALL_SUBNETWORK, SMALL_TEMPERED),
    ("added weights, over a temperature, 0.005 nats each", ADDED, SMALL_TEMPERED),
    ("both, over added weights alone, 0.005 nats each", DEFAULT, ADDED),
)
REJECTING = (SMALL_TEMPERED, SMALL_SUBNETWORK, ADDED, DEFAULT)


def steps(result: dict[str, Any]) -> list[str]:
    """Paired gains at equal budgets, and the shares rejected; [] where the rows were not measured."""
    rows = result["summary"]["rows"]
    present = [step for step in STEPS if {step[1], step[2]} <= set(rows)]
    if ADDED not in rows:
        return []
    runs, strong = [run["methods"] for run in result["runs"]], STRONG[result["published"]]
    unit, (foreign,) = UNITS[result["published"]], next(iter(rows.values()))["auroc"]
    found = []
    for title, label, other in present:
        pairs = [(run[label], run[other]) for run in runs if label in run and other in run]
        cells = [_gain([_worth(a, (0,)) - _worth(b, (0,)) for a, b in pairs])]
        cells.append(_gain([_worth(a, strong) - _worth(b, strong) for a, b in pairs], _by_kind(pairs, strong)))
        cells += [_gain([_worth(a, (shift,)) - _worth(b, (shift,)) for a, b in pairs]) for shift in strong[-1:]]
        found.append([title, *cells, _gain([a["auroc"][foreign] - b["auroc"][foreign] for a, b in pairs], digits=3)])
    head = ["what adds", "without a shift", "strong shift", f"{strong[-1]}{unit}", f"AUROC {foreign}"]
    over = "seeds" if len(runs) > 1 else "kinds of corruption"
    text = [
        "### What each step adds\n",
        f"Log-likelihood in nats at equal budgets, paired, ± half the 95 % interval over {over}; AUROC of the "
        "predictive entropy. The default judges its candidates on synthetic shifts, rotation among them; added "
        "weights alone see no shift. The rows with 0.005 nats are of the same networks, trained again on one "
        "thread, where rounding differs.\n",
        table(head, found),
    ]
    return [*text, *_rejection(result, foreign)]


def _worth(method: dict[str, Any], shifts: tuple[int, ...]) -> float:
    return float(np.mean([method["shifts"][str(shift)]["log_likelihood"] for shift in shifts]))


def _by_kind(pairs: list[tuple[dict[str, Any], dict[str, Any]]], shifts: tuple[int, ...]) -> list[float]:
    """Of one network, the mean gain under each kind of shift."""
    first, other = pairs[0]
    kinds = first["kinds"][str(shifts[0])]
    return [float(np.mean([first["kinds"][str(s)][k] - other["kinds"][str(s)][k] for s in shifts])) for k in kinds]


def _gain(values: list[float], by_kind: list[float] | None = None, digits: int = 3) -> str:
    samples = values if len(values) > 1 else (by_kind or [])
    error = f" ± {number(half_width(np.array(samples)), digits)}" if len(samples) > 1 else ""
    return signed(float(np.mean(values)), digits) + error


def _rejection(result: dict[str, Any], foreign: str) -> list[str]:
    """A table, and what is accepted though it is wrong."""
    rows, unit, strong = result["summary"]["rows"], UNITS[result["published"]], STRONG[result["published"]]
    shown = [0, strong[0], strong[len(strong) // 2], strong[-1]]
    found: list[list[str]] = []
    lines: list[str] = []
    for label in (label for label in REJECTING if rows.get(label, {}).get("rejection")):
        own = rows[label]["rejection"]
        cells = [f"{100 * own['all'][str(shift)]:.0f} %" for shift in shown]
        cells += [f"{100 * own['wrong'][str(shift)]:.0f} %" for shift in shown[1:]]
        found.append([label, *cells, f"{100 * own['foreign'][foreign]:.0f} %", number(own["auroc"][foreign], 3)])
        if label == DEFAULT:
            lines = _accepted(rows[label], strong[-1], unit, foreign)
    if not found:
        return []
    head = ["rejected of", *(f"all, {shift}{unit}" for shift in shown)]
    head += [f"wrong, {shift}{unit}" for shift in shown[1:]]
    return [
        "Rejected at a false-reject rate of 5 %: a temperature and a subnetwork by the predictive entropy, bundles "
        "with added weights by `surprise`; the last column is this score's AUROC.\n",
        table([*head, foreign, "AUROC"], found),
        *lines,
    ]


def _accepted(row: dict[str, Any], strongest: int, unit: str, foreign: str) -> list[str]:
    """What the default leaves unnoticed."""
    own, wrong = row["rejection"], row["shifts"][str(strongest)]["error"]["mean"]
    return [
        f"At {'' if unit else 'level '}{strongest}{unit} {100 * wrong:.0f} % of the answers are wrong, and the default "
        f"rejects {100 * own['wrong'][str(strongest)]:.0f} % of these; the others look like what the network knows. Of "
        f"{foreign} it rejects {100 * own['foreign'][foreign]:.0f} %.\n"
    ]
