"""Rotated MNIST and corrupted CIFAR-10: what a subnetwork is worth beside controls that spend as much."""

from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from benchmarks.core.markdown import listed, number, percent, signed, table
from paper.corruptions.registry import CORRUPTIONS, STAND_INS
from paper.images.baselines.diagonal_laplace import GRID
from paper.images.plot import TITLES
from paper.images.summary import (
    ADDED,
    AGAINST,
    DEFAULT,
    ENSEMBLE,
    OURS_BY_PAPER,
    PAPERS_RULE,
    RANDOM,
    RANDOM_BY_PAPERS_RULE,
    SMALL_TEMPERED,
    STRONG,
    TEMPERED,
    TEMPERED_ENSEMBLE,
    UNITS,
    summarise,
)
from paper.page import image_tables
from paper.page.results import Section, frame

MAIN = (
    *("MAP", ENSEMBLE, TEMPERED, TEMPERED_ENSEMBLE, PAPERS_RULE, OURS_BY_PAPER, RANDOM, "last layer"),
    *(SMALL_TEMPERED, ADDED, DEFAULT),
)
EXPLAINED = {"MAP", TEMPERED, OURS_BY_PAPER, PAPERS_RULE, RANDOM, RANDOM_BY_PAPERS_RULE}
SAMPLED, LINEARISED = "diagonal Laplace, sampled", "diagonal Laplace, linearised"
UNDERTRAINED = 1.15  # times the plain network's errors
LEAST_GAIN = 0.005  # nats: less is shown as none
STEPS = (
    ("The paper's subnetwork", OURS_BY_PAPER, "a temperature at the same 0.05 nats", TEMPERED),
    ("Added weights", ADDED, "a temperature at the same 0.005 nats", SMALL_TEMPERED),
    ("Both", DEFAULT, "added weights alone", ADDED),
)
SAW = "\\* measured when `auto` still compared strategies, under rotation too: leave it out of rankings.\n"
CORRUPTED = (
    f"{len(CORRUPTIONS)} corruptions (Hendrycks and Dietterich, 2019, in the selection of Ovadia et al., 2019) at five "
    "levels, with stand-ins: "
    + "; ".join(f"{name}: {what}" for name, what in STAND_INS.items())
    + ". CIFAR-100 stands in for the paper's SVHN.\n"
)


def section(result: dict[str, Any]) -> Section:
    """One experiment at one size."""
    result = result | {"summary": summarise(result["runs"], result["published"])}
    published, scale, seeds = result["published"], result["scale"], len(result["runs"])
    tables = image_tables.of(result)
    text = [
        f"## {TITLES[published]}: {scale['network']}\n",
        f"D = {result['weights']:,}, S = {scale['size']:,}, {scale['train']:,} training images for {scale['epochs']} "
        f"epochs, {scale['curvature']:,} for the curvature, {scale['test']:,} test images, {seeds} "
        f"{'seed, so that small differences mean nothing' if seeds == 1 else 'seeds'}.\n",
        *([CORRUPTED] if published == "corrupted_cifar10" else []),
        _main(result),
        "\n".join([*_orderings(result), *_steps(result), *_explanation(result), *_accepted(result), *_caveats(result)]),
        "",
        frame(result, TITLES[published], list(tables)),
    ]
    return Section("\n".join(text), tables)


def usual(result: dict[str, Any], label: str) -> float:
    """Log-likelihood without a shift."""
    return float(result["summary"]["rows"][label]["shifts"]["0"]["log_likelihood"]["mean"])


def under_shift(result: dict[str, Any], label: str) -> float:
    """Mean log-likelihood over the strong shifts."""
    shifts = result["summary"]["rows"][label]["shifts"]
    return fmean(shifts[str(shift)]["log_likelihood"]["mean"] for shift in STRONG[result["published"]])


def _main(result: dict[str, Any]) -> str:
    """The main rows beside the controls: means over the strong shifts."""
    rows = result["summary"]["rows"]
    labels = [label for label in MAIN if label in rows]
    (foreign,) = next(iter(rows.values()))["auroc"]
    found = []
    for label in labels:
        row = rows[label]
        cells = [f"{row['price']['mean']:.3g}", number(usual(result, label), 3), number(under_shift(result, label), 3)]
        mark = "\\*" if row["saw_rotation"] else ""
        fewer = "" if row["seeds"] == len(result["runs"]) else f" ({row['seeds']} of the seeds)"
        found.append([label + mark + fewer, *cells, number(row["auroc"][foreign]["mean"], 3)])
    head = ["", "passes", "without a shift", "strong shift", f"AUROC {foreign}"]
    saw = [SAW] if any(rows[label]["saw_rotation"] for label in labels) else []
    return "\n".join([table(head, found), *saw])


def _orderings(result: dict[str, Any]) -> list[str]:
    """Where ours are above the others under strong shift: within the budget, and by the paper's own rule."""
    kinds = next(iter(result["runs"][0]["methods"].values()))["kinds"]
    over_kinds = len(result["runs"]) == 1 and len(next(iter(kinds.values()))) > 2
    judge = _over_kinds if over_kinds else _over_seeds
    rows, lines = result["summary"]["rows"], []
    for ours in (OURS_BY_PAPER, PAPERS_RULE):
        groups: dict[str, list[str]] = {}
        for label in AGAINST[ours]:
            if ours in rows and label in rows:
                verdict, gain = judge(result, ours, label)
                groups.setdefault(verdict, []).append(f"`{label}`" if verdict == "above" else f"`{label}` ({gain})")
        if groups:
            verdicts = "; ".join(f"{verdict} {listed(groups[verdict])}" for verdict in sorted(groups))
            lines.append(f"* `{ours}` under strong shift is {verdicts}.")
    if lines:
        how = (
            "gain ± half its 95 % interval over kinds of corruption"
            if over_kinds
            else (f"gains over the shifts; above: by {LEAST_GAIN} nats or more at each of them")
        )
        lines[-1] += f" In brackets, {how}."
    return lines


def _over_seeds(result: dict[str, Any], ours: str, label: str) -> tuple[str, str]:
    """Whether the mean over seeds is above at every strong shift, and from where to where the gains are."""
    gains = [one["gain"]["mean"] for one in result["summary"]["orderings"][ours] if one["against"] == label]
    verdict = "above" if min(gains) >= LEAST_GAIN else "not above"
    return verdict, f"{signed(min(gains))} to {signed(max(gains))}"


def _over_kinds(result: dict[str, Any], ours: str, label: str) -> tuple[str, str]:
    """One network: whether the mean over the strong shifts is above beyond the noise over kinds of shift."""
    methods, strong = result["runs"][0]["methods"], STRONG[result["published"]]
    kinds = list(methods[ours]["kinds"][str(strong[0])])
    own, other = (
        np.array([[methods[one]["kinds"][str(shift)][kind] for kind in kinds] for shift in strong]).mean(0)
        for one in (ours, label)
    )
    gain, half = float((own - other).mean()), _half_width(own - other)
    verdict = "above" if gain > half else "below" if gain < -half else "within the noise of"
    return verdict, f"{signed(gain)} ± {number(half)}"


def _steps(result: dict[str, Any]) -> list[str]:
    """What a temperature, a subnetwork and added weights each add to the one before, at equal budgets."""
    published, (foreign,) = result["published"], next(iter(result["summary"]["rows"].values()))["auroc"]
    runs, strong = [run["methods"] for run in result["runs"]], STRONG[published]
    lines = []
    for what, label, over, other in STEPS:
        pairs = [(run[label], run[other]) for run in runs if {label, other} <= set(run)]
        if pairs:
            shifted = _gain([_worth(a, strong) - _worth(b, strong) for a, b in pairs])
            ordinary = _gain([_worth(a, (0,)) - _worth(b, (0,)) for a, b in pairs])
            auroc = _gain([a["auroc"][foreign] - b["auroc"][foreign] for a, b in pairs])
            gains = f"{shifted} nats under strong shift, {ordinary} without, {auroc} of AUROC"
            lines.append(f"* {what} over {over}: {gains}.")
    return lines


def _worth(method: dict[str, Any], shifts: tuple[int, ...]) -> float:
    return float(np.mean([method["shifts"][str(shift)]["log_likelihood"] for shift in shifts]))


def _gain(values: list[float]) -> str:
    """The mean, and half its 95 % interval where there are several."""
    error = f" ± {number(_half_width(np.array(values)), 3)}" if len(values) > 1 else ""
    return signed(float(np.mean(values)), 3) + error


def _half_width(gains: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    """Half the 95 % interval of their mean (Student's t)."""
    return float(stats.t.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains)))


def _explanation(result: dict[str, Any]) -> list[str]:
    """What the budget is worth, and what the choice of weights is, with and without one budget for all."""
    if not set(result["summary"]["rows"]) >= EXPLAINED:
        return []
    found = {label: under_shift(result, label) for label in EXPLAINED}
    value = {label: number(one) for label, one in found.items()}
    return [
        "* What explains it is the budget: under strong shift it takes the paper's selection from "
        f"{value[PAPERS_RULE]} (best held-out lambda) to {value[OURS_BY_PAPER]} nats, and one temperature that spends "
        f"as much takes MAP from {value['MAP']} to {value[TEMPERED]}. Random selection differs by "
        f"{signed(found[RANDOM] - found[OURS_BY_PAPER])} with the same budget, and by "
        f"{signed(found[RANDOM_BY_PAPERS_RULE] - found[PAPERS_RULE])} with the best held-out lambda."
    ]


def _accepted(result: dict[str, Any]) -> list[str]:
    """What the default leaves unnoticed."""
    published, row = result["published"], result["summary"]["rows"].get(DEFAULT, {})
    if not row.get("rejection"):
        return []
    strongest = str(STRONG[published][-1])
    own, ((foreign, share),) = row["rejection"], row["rejection"]["foreign"].items()
    place = f"{strongest}{UNITS[published]}" if UNITS[published] else f"severity {strongest}"
    return [
        f"* At {place}, {percent(row['shifts'][strongest]['error']['mean'])} of the answers are "
        f"wrong, and the default bundle, at a false-reject rate of 5 %, rejects {percent(own['wrong'][strongest])} of "
        f"these; the others look like what the network knows. It rejects {percent(share)} of {foreign}, and "
        f"{percent(own['all']['0'])} of ordinary images."
    ]


def _caveats(result: dict[str, Any]) -> list[str]:
    """Rows whose settings lie at an edge, one line each."""
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
