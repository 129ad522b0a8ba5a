"""Where the log-likelihood of ours is above that of the other methods under strong shift, and what explains it."""

from typing import Any

import numpy as np

from paper.images.summary import (
    AGAINST,
    LOOKED_AT,
    OURS_BY_PAPER,
    PAPERS_RULE,
    PRODUCTS_CHOICE,
    RANDOM,
    RANDOM_BY_PAPERS_RULE,
    STRONG,
    TEMPERED,
)
from paper.page.findings import under_shift, usual
from paper.page.markdown import listed, number, signed
from paper.questions.verdicts import half_width

UNITS = {"rotated_mnist": "°", "corrupted_cifar10": ""}
LEAST_GAIN = 0.005  # nats: less is shown as none
KEYS = {
    OURS_BY_PAPER: "ordering",
    PAPERS_RULE: "ordering_by_the_papers_rule",
    PRODUCTS_CHOICE: "ordering_of_the_products_choice",
}
EXPLAINED = {"MAP", TEMPERED, OURS_BY_PAPER, PAPERS_RULE, RANDOM, RANDOM_BY_PAPERS_RULE}


def orderings(result: dict[str, Any]) -> list[str]:
    """That of the paper's selection within the budget, of the paper's own rule, and of what the product chooses."""
    kinds = next(iter(result["runs"][0]["methods"].values()))["kinds"]
    over_kinds = len(result["runs"]) == 1 and len(next(iter(kinds.values()))) > 2
    rows = set(result["summary"]["rows"])
    present = [ours for ours in KEYS if ours in rows and rows.intersection(AGAINST[ours])]
    found = [_over_kinds(result, ours) if over_kinds else _over_seeds(result, ours) for ours in present]
    return [*found, _explanation(result)] if rows >= EXPLAINED else found


def _title(result: dict[str, Any], ours: str, how: str) -> str:
    unit, shifts = UNITS[result["published"]], STRONG[result["published"]]
    return f"**Log-likelihood under strong shift** ({shifts[0]}{unit} to {shifts[-1]}{unit}; {how}), `{ours}` against"


def _over_seeds(result: dict[str, Any], ours: str) -> str:
    """At which shifts the mean over seeds is above, and in how many pairs."""
    unit, lines = UNITS[result["published"]], []
    rows = result["summary"][KEYS[ours]]
    for label in dict.fromkeys(one["against"] for one in rows):
        own = [one for one in rows if one["against"] == label]
        gains = [one["gain"]["mean"] for one in own]
        won, of = sum(one["won"] for one in own), sum(one["seeds"] for one in own)
        behind = [f"{one['shift']}{unit}" for one in own if one["gain"]["mean"] < LEAST_GAIN]
        verdict = f"not above at {listed(behind)}" if behind else "above at every shift"
        lines.append(
            f"* {label}: {verdict} ({signed(min(gains))} to {signed(max(gains))} nats; {won} of {of} pairs of a shift "
            f"and a seed); without a shift {signed(usual(result, ours) - usual(result, label))}."
        )
    how = f"above: by at least {LEAST_GAIN} nats in the mean over seeds"
    return f"{_title(result, ours, how)}\n\n" + "\n".join(lines) + "\n"


def _over_kinds(result: dict[str, Any], ours: str) -> str:
    """One network: whether the mean over the strong shifts is above beyond the noise over kinds of shift."""
    methods, strong = result["runs"][0]["methods"], STRONG[result["published"]]
    kinds = [kind for kind in methods[ours]["kinds"][str(strong[0])] if kind not in LOOKED_AT.get(ours, ())]
    lines = []
    for label in (label for label in AGAINST[ours] if label in methods):
        own, other = (
            np.array([[methods[one]["kinds"][str(shift)][kind] for kind in kinds] for shift in strong]).mean(0)
            for one in (ours, label)
        )
        gain, half = float((own - other).mean()), half_width(own - other)
        beyond = "above" if gain > half else "below" if gain < -half else "no different beyond the noise"
        lines.append(
            f"* {label}: {beyond} ({signed(gain, 3)} ± {number(half, 3)} nats); "
            f"without a shift {signed(usual(result, ours) - usual(result, label))}."
        )
    seen = ", none of which it saw while choosing" if ours in LOOKED_AT else ""
    how = f"one network: mean gain ± half its 95 % interval over {len(kinds)} kinds of corruption{seen}"
    return f"{_title(result, ours, how)}\n\n" + "\n".join(lines) + "\n"


def _explanation(result: dict[str, Any]) -> str:
    """What the budget is worth, and what the choice of weights is, with and without one budget for all."""
    found = {label: under_shift(result, label) for label in EXPLAINED}
    value = {label: number(one) for label, one in found.items()}
    return (
        "**What explains it.** The budget: under strong shift it takes the paper's selection from "
        f"{value[PAPERS_RULE]} (best held-out lambda) to {value[OURS_BY_PAPER]} nats, and one temperature that spends "
        f"as much takes MAP from {value['MAP']} to {value[TEMPERED]}. A lambda that is best on held-out images leaves "
        "little uncertainty, because these are like the training images. The choice of weights: random selection comes "
        f"to {value[RANDOM]} with the same budget, a difference of {signed(found[RANDOM] - found[OURS_BY_PAPER])}, and "
        f"to {value[RANDOM_BY_PAPERS_RULE]} with the best held-out lambda, a difference of "
        f"{signed(found[RANDOM_BY_PAPERS_RULE] - found[PAPERS_RULE])}.\n"
    )
