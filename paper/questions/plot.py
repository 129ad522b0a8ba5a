"""The gain of every open choice over the product, with its interval."""

from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from benchmarks.core.plots import Values, save
from paper.questions.verdicts import MEASURES

NETWORKS = {"mnist": "Rotated MNIST", "cifar": "Corrupted CIFAR-10"}
TITLES = {"usual": "in nats, without a shift", "shifted": "in nats, under shift", "auroc": "in AUROC, foreign images"}
APART = 0.35


def draw(record: Values, path: Path) -> None:
    """A row for each network, a column for each measure; a mark for each choice of weights."""
    rows = [row for row in record["verdicts"] if row["variant"] != record["product"]]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure, places = plt.subplots(
        len(networks),
        len(MEASURES),
        figsize=(13, 4.2 * len(networks)),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    for network, line in zip(networks, places, strict=True):
        own = [row for row in rows if row["network"] == network]
        for axes, measure in zip(line, MEASURES, strict=True):
            _gains(axes, own, measure)
            axes.set_title(f"{NETWORKS[network]}\ngain {TITLES[measure]}", fontsize=10)
    places[0, 0].invert_yaxis()  # of all: they share it
    places[0, 0].legend(title="weights of", fontsize=8)
    save(figure, path, record, dpi=90)


def _gains(axes: Axes, rows: list[dict[str, Any]], measure: str) -> None:
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    chosen = list(dict.fromkeys(row["weights"] for row in rows))
    for number, weights in enumerate(chosen):
        own = {row["variant"]: row[measure] for row in rows if row["weights"] == weights}
        heights = [place + APART * (number - (len(chosen) - 1) / 2) for place in range(len(variants))]
        gains = [own[variant]["gain"] for variant in variants]
        widths = [own[variant]["half_width"] or 0.0 for variant in variants]
        axes.errorbar(gains, heights, xerr=widths, fmt="o", ms=4, capsize=2, color=f"C{number}", label=weights)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(variants)), variants, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="x", alpha=0.3)
