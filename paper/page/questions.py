"""Figure 5 and appendix A.1, and the questions that the paper leaves open."""

from collections import defaultdict
from statistics import fmean
from typing import Any

from paper.images.plot import TITLES
from paper.page.images import SHOWN
from paper.page.markdown import listed, number, signed, size, table
from paper.page.ordering import UNITS
from paper.page.results import picture, source
from paper.questions.run import SIZE

KINDS = {"subnetworks": "weights of a subnetwork", "ensembles": "networks of an ensemble"}
MEASURES = ("usual", "shifted", "auroc")
NAMES = ("ordinary", "shifted", "AUROC")
NETWORKS = {"mnist": "MNIST", "cifar": "CIFAR-10"}


def sizes(result: dict[str, Any]) -> str:
    """Log-likelihood by the size of subnetwork and ensemble, with memory."""
    text = [
        "## Sizes of subnetworks and ensembles (figure 5, appendix A.1)\n",
        "Wasserstein selection; log-likelihood by shift, means over seeds. Each S has its own prior precision within "
        "the budget, where the paper has one for all S. Passes: processor time of a prediction over the plain "
        "network's; covariance: 4 S^2 bytes. The paper gives curves, and of the "
        "covariance's memory: 40 KB for S = 100, 4.0 MB for 1,000, 6.4 GB for 40,000.\n",
        source(result),
        picture(result, "Log-likelihood by size of subnetwork and ensemble"),
    ]
    for found in result["problems"].values():
        published = found["published"]
        shown, scale, seeds = SHOWN[published], found["scale"], len(found["runs"])
        text.append(
            f"### {TITLES[published]}: {scale['network']}\n\n{seeds} {'seed' if seeds == 1 else 'seeds'}, the first "
            f"{scale['test']:,} test images.\n"
        )
        for kind, unit in KINDS.items():
            rows = []
            for count, row in found["summary"][kind].items():
                memory = [size(row["covariance_bytes"])] if kind == "subnetworks" else [size(row["bytes"]["mean"])]
                values = [number(row["shifts"][str(shift)]["log_likelihood"]["mean"]) for shift in shown]
                rows.append([f"{int(count):,}", f"{row['price']['mean']:.3g}", *memory, *values])
            shifts = [f"{shift}{UNITS[published]}" for shift in shown]
            what = "covariance" if kind == "subnetworks" else "weights"
            text.append(table([unit, "passes", what, *shifts], rows))
    return "\n".join(text)


def questions(result: dict[str, Any]) -> str:
    """Every variant's gain over the product, with the interval of the paired differences."""
    variants = dict.fromkeys(row["variant"] for row in result["verdicts"])
    spent = _spent(result["runs"])
    head = ["weights of", "variant", "spent", "ordinary", "gain", "shifted", "gain", "AUROC", "gain"]
    text = [
        "## What the paper leaves open\n",
        f"Every variant against the first row ({result['product']}) with the same weights; the smallest prior "
        "precision within the budget. Gain: mean of the paired differences over seeds, ± half its 95 % interval "
        "(Student's t); bold where it is beyond the noise; every seed has a network and test images of its own. Of "
        f"{sum(bool(row[m]['gain']) for row in result['verdicts'] for m in MEASURES)} comparisons, one in twenty would "
        "be bold by chance. Spent: nats of held-out log-likelihood, mean over seeds; less than the budget where a "
        "smaller prior precision, down to next to none, leaves no more uncertainty. Shifted: log-likelihood under "
        "kinds of shift that no strategy saw.\n",
        f"S = {SIZE}; {_amounts(result['amounts'])}.\n",
        source(result),
        picture(result, "Gain of every open choice over the product"),
        "\n".join(filter(None, (_verdict(result["verdicts"], variant) for variant in variants))) + "\n",
    ]
    for network in dict.fromkeys(row["network"] for row in result["verdicts"]):
        rows = []
        for row in (one for one in result["verdicts"] if one["network"] == network):
            cells = [row["weights"], row["variant"]]
            cells.append(number(spent[row["network"], row["weights"], row["variant"]], 3))
            for measure in MEASURES:
                cells += [number(row[measure]["mean"], 3), _gain(row[measure])]
            rows.append(cells)
        seeds = next(row["seeds"] for row in result["verdicts"] if row["network"] == network)
        text.append(f"### {NETWORKS[network]}, {seeds} seeds\n\n" + table(head, rows))
    return "\n".join(text)


def _spent(runs: list[dict[str, Any]]) -> dict[tuple[str, str, str], float]:
    """(network, weights, variant) -> mean over the seeds."""
    found = defaultdict[tuple[str, str, str], list[float]](list)
    for run in runs:
        for variant, outcome in run["variants"].items():
            found[run["network"], run["weights"], variant].append(outcome["spent"])
    return {key: fmean(values) for key, values in found.items()}


def _amounts(amounts: dict[str, Any]) -> str:
    return (
        f"{amounts['curvature']:,} training images for the curvature, {amounts['held_out']:,} held-out images for the "
        f"prior precision, {amounts['test']:,} test images a seed"
    )


def _verdict(rows: list[dict[str, Any]], variant: str) -> str:
    """Where a variant is better and worse, beyond the noise; "" for the product itself."""
    own = [row for row in rows if row["variant"] == variant]
    if not any(row[measure]["gain"] for row in own for measure in MEASURES):
        return ""
    parts = []
    for measure, name in zip(MEASURES, NAMES, strict=True):
        for verdict in ("better", "worse"):
            places = [
                f"{NETWORKS[row['network']]} with {row['weights']}" for row in own if row[measure]["verdict"] == verdict
            ]
            parts += [f"{name} {verdict} on {listed(places)}"] if places else []
    return f"* **{variant}**: {'; '.join(parts) if parts else 'no difference beyond the noise'}."


def _gain(found: dict[str, Any]) -> str:
    if not found["gain"]:
        return ""
    half = "" if found["half_width"] is None else f" ± {number(found['half_width'], 3)}"
    text = signed(found["gain"], 3) + half
    return text if found["verdict"] == "within the noise" else f"**{text}**"
