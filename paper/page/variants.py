"""Figure 5 and appendix A.1, and the questions that the paper leaves open."""

from collections import defaultdict
from statistics import fmean
from typing import Any

from benchmarks.core.markdown import Cell, number, table
from paper.images.plot import TITLES
from paper.images.sizes import summarise
from paper.images.summary import STRONG
from paper.page.results import Section, frame

KINDS = {"subnetworks": "weights", "ensembles": "networks"}
NAMES = {"usual": "ordinary", "shifted": "shifted", "auroc": "AUROC"}
NETWORKS = {"mnist": "MNIST", "cifar": "CIFAR-10"}


def sizes(result: dict[str, Any]) -> Section:
    """Log-likelihood by the size of subnetwork and ensemble."""
    stem = result["stem"]
    rows, full = [], list[dict[str, Cell]]()
    for found in result["problems"].values():
        published = found["published"]
        strong = str(STRONG[published][-1])
        for kind, unit in KINDS.items():
            measured = summarise(found["runs"])[kind]
            ends = [min(measured, key=int), max(measured, key=int)]
            for count, row in measured.items():
                shifts = {shift: value["log_likelihood"]["mean"] for shift, value in row["shifts"].items()}
                if count in ends:
                    cells = [f"{row['price']['mean']:.3g}", number(shifts["0"]), number(shifts[strong])]
                    rows.append([f"{TITLES[published]}, {unit}: {int(count):,}", *cells])
                size: dict[str, Cell] = {"experiment": published, "kind": kind, "size": int(count)}
                size |= {"passes": row["price"]["mean"], "bytes": row["bytes"]["mean"]}
                full += [size | {"shift": int(shift), "log_likelihood": value} for shift, value in shifts.items()]
    text = [
        "## Sizes of subnetworks and ensembles (figure 5, appendix A.1)\n",
        "Log-likelihood without a shift and under the strongest one, by S (Wasserstein selection, a prior precision "
        "within the budget for each S, where the paper has one for all) and by the networks of an ensemble.\n",
        table(["", "passes", "without a shift", "strongest shift"], rows),
        frame(result, "Log-likelihood by size of subnetwork and ensemble", [stem]),
    ]
    return Section("\n".join(text), {stem: full})


def questions(result: dict[str, Any]) -> Section:
    """Every variant's verdict against the product."""
    stem, verdicts, amounts = result["stem"], result["verdicts"], result["amounts"]
    variants = [
        variant for variant in dict.fromkeys(row["variant"] for row in verdicts) if variant != result["product"]
    ]
    places = len({(row["network"], row["weights"]) for row in verdicts})
    seeds = {NETWORKS[row["network"]]: row["seeds"] for row in verdicts}
    compared = sum(bool(row[measure]["gain"]) for row in verdicts for measure in NAMES)
    text = [
        "## What the paper leaves open\n",
        f"Every variant against the setting of then ({result['product']}) with the same S = 750 weights: "
        "log-likelihood of ordinary images, under kinds of shift that no strategy saw, and AUROC. In how many of "
        f"{places} places (networks, choices of weights) the 95 % interval of the paired differences over seeds leaves "
        f"out 0; of {compared} comparisons, one in twenty would by chance. "
        f"{' and '.join(f'{count} seeds of {network}' for network, count in seeds.items())}, "
        f"{amounts['held_out']:,} held-out and {amounts['test']:,} test images each.\n",
        table(["", *NAMES.values()], [[variant, *_verdicts(verdicts, variant)] for variant in variants]),
        frame(result, "Gain of every open choice over the product", [stem], code="; that commit has the code"),
    ]
    spent = _spent(result["runs"])
    full: list[dict[str, Cell]] = [
        {"network": row["network"], "weights": row["weights"], "variant": row["variant"], "seeds": row["seeds"]}
        | {"spent": spent[row["network"], row["weights"], row["variant"]]}
        | {f"{NAMES[m]}_{key}": row[m][key] for m in NAMES for key in ("mean", "gain", "half_width", "verdict")}
        for row in verdicts
    ]
    return Section("\n".join(text), {stem: full})


def _spent(runs: list[dict[str, Any]]) -> dict[tuple[str, str, str], float]:
    """(network, weights, variant) -> nats of held-out log-likelihood, mean over the seeds."""
    found = defaultdict[tuple[str, str, str], list[float]](list)
    for run in runs:
        for variant, outcome in run["variants"].items():
            found[run["network"], run["weights"], variant].append(outcome["spent"])
    return {key: fmean(values) for key, values in found.items()}


def _verdicts(rows: list[dict[str, Any]], variant: str) -> list[str]:
    """For each measure, on how many networks and choices of weights a variant is better and worse."""
    found = [[row[measure]["verdict"] for row in rows if row["variant"] == variant] for measure in NAMES]
    return [", ".join(f"{own.count(one)} {one}" for one in ("better", "worse") if one in own) for own in found]
