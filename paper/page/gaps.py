"""Regressions with a gap: intervals and rejection inside it."""

from typing import Any

from paper.gaps.data import TABLES, TOYS
from paper.gaps.run import FAST_SPLITS
from paper.gaps.summary import BASELINE
from paper.page.markdown import listed, number, signed, table
from paper.page.results import picture, source

ADDED, BOTH, LIKELIEST = "added weights", "both (default)", "added weights, likeliest"

FAST = f"--fast takes at most the first {FAST_SPLITS} splits of a table and as many draws of a toy"


def section(result: dict[str, Any]) -> str:
    """Every table and toy, and what the added weights gain and lose."""
    text = [
        "## Regression with a gap\n",
        "The rows inside the gap are the middle third by one input, which is a UCI gap split, and for the toys the "
        "middle third of the rows. Of the others a tenth is kept as ordinary rows to test, and a fifth for early "
        "stopping and calibration. The network: 2 x 100 ReLU, for the toys 2 x 50. `wasserstein` (S = 1,000) and the "
        "full covariance are the paper's, with the noise learnt with the network and the best lambda on the validation "
        "rows. `both (default)` is a bundle with the defaults of `FitConfig`, 0.005 nats among them; `subnetwork` and "
        "`added weights` are bundles with that posterior alone. `added weights, likeliest` takes the prior variance "
        "and the noise under which the validation rows are likeliest, which may be no variance at all.\n",
        *([_left_out(result["summary"])] if result["fast"] else []),
        source(result),
        picture(result, "Intervals of each method on toys with a gap"),
        _what_it_comes_to(result["summary"]),
        "Log-likelihood in nats, targets in original units; gain: over the noise alone inside the gap, paired, "
        "± standard deviation over splits; coverage and mean width of the 95 % intervals, in standard "
        "deviations of the targets; rejected at a false-reject rate of 5 %; AUROC: of the score, the rows in the gap "
        "against the ordinary ones.\n",
    ]
    for name, found in result["summary"].items():
        harder, unit = found["squared_error_in_the_gap"]["mean"], "draw" if name in TOYS else "split"
        many = "" if found["splits"] == 1 else "s"
        text.append(
            f"**{name}**, {found['splits']} {unit}{many}; the squared error in the gap is {number(harder, 1)} times "
            "that of ordinary rows:\n"
        )
        text.append(_table(found["methods"]))
    return "\n".join(text)


def _left_out(summary: dict[str, Any]) -> str:
    """What the size for two cores does without."""
    absent = [name for name in (*TOYS, *TABLES) if name not in summary]
    return f"{FAST}; not measured here: {listed(absent)}.\n" if absent else f"{FAST}.\n"


def _table(methods: dict[str, Any]) -> str:
    head = ["method", "ordinary", "in the gap", "gain", "coverage", "in the gap", "width", "in the gap", "rejected"]
    head += ["in the gap", "AUROC"]
    rows = []
    for label, found in methods.items():
        ordinary, gap, gain = found["ordinary"], found["gap"], found["gain"]["gap"]
        spread = "" if gain["std"] is None else f" ± {number(gain['std'], 3)}"
        cells = [number(part["log_likelihood"]["mean"], 3) for part in (ordinary, gap)]
        cells.append("" if label == BASELINE else signed(gain["mean"], 3) + spread)
        cells += [_percent(part["coverage"]) for part in (ordinary, gap)]
        cells += [number(part["width"]["mean"]) for part in (ordinary, gap)]
        cells += [_percent(part["rejected"]) for part in (ordinary, gap)]
        rows.append([label, *cells, "" if found["auroc"] is None else number(found["auroc"]["mean"], 3)])
    return table(head, rows)


def _percent(value: dict[str, float] | None) -> str:
    return "" if value is None else f"{100 * value['mean']:.0f} %"


def _what_it_comes_to(summary: dict[str, Any]) -> str:
    """What the default gains inside the gap, and what deciding by likelihood would."""
    lines = ["**What it comes to**\n"]
    for title, names in (
        ("Toys", [name for name in summary if name in TOYS]),
        ("Tables", [name for name in summary if name not in TOYS]),
    ):
        for label in (BOTH, ADDED, LIKELIEST):
            gains = [f"{signed(_gain(summary[name], label), 3)} on {name}" for name in names]
            if gains:
                lines.append(f"* {title}: `{label}` against the noise alone, inside the gap: {listed(gains)} nats.")
    none = [f"{name} {_zeros(found)} of {found['splits']}" for name, found in summary.items()]
    lines.append(
        f"* Splits on which the likeliest variance of the added weights is none: {'; '.join(none)}. Ordinary rows show "
        "little of what happens far from them, so the variance is bounded by the budget and not chosen by their "
        "likelihood.\n"
    )
    return "\n".join(lines)


def _gain(found: dict[str, Any], label: str) -> float:
    return float(found["methods"][label]["gain"]["gap"]["mean"])


def _zeros(found: dict[str, Any]) -> int:
    return sum(variance == 0 for variance in found["methods"][LIKELIEST]["prior_variances"])
