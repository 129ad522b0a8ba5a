"""The picture of quality against price: a row for each network, a panel for each kind of quality."""

from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.core.plots import Values, save

PANELS = {
    "usual": "Log-likelihood, ordinary images (nats)",
    "rotation": "Log-likelihood, turned images (nats)",
    "unseen": "Log-likelihood, other shifts (nats)",
    "auroc": "AUROC, foreign images",
}
TICKS, SHOWN = (1, 2, 5, 10, 20, 50), (0.8, 70)
OWN_SCORE = "score_auroc"  # of a bundle, by the score that it rejects by, in place of the entropy
TITLES = {
    "mnist": "MNIST, small CNN; foreign: Fashion-MNIST",
    "fashion": "Fashion-MNIST, small CNN; foreign: MNIST",
    "cifar": "CIFAR-10, narrow ResNet; foreign: CIFAR-100",
}
# Okabe and Ito's colours. Name -> colour, marker.
STYLES: dict[str, tuple[str, str]] = {
    "plain network": ("black", "o"),
    "best temperature": ("black", "v"),
    "temperature, 0.005 nats": ("black", "^"),
    "distances scale the temperature": ("#009E73", "^"),
    "MC dropout, 16 samples": ("#888888", "s"),
    "ensemble of 5": ("#7A6A00", "s"),
    "ensemble of 5, best temperature": ("#7A6A00", "v"),
    "last layer, laplace-torch": ("#E69F00", "s"),
    "default bundle": ("#D55E00", "*"),
    "default, 0.02 nats": ("#D55E00", "P"),
    "added weights alone": ("#CC79A7", "D"),
    "subnetwork alone": ("#56B4E9", "D"),
    "subnetwork alone, 0.05 nats, T = 1": ("#0072B2", "D"),
}


def draw(record: Values, path: Path) -> None:
    """Means over seeds, bars one standard deviation."""
    summary = record["summary"]
    figure, axes = plt.subplots(
        len(summary), len(PANELS), figsize=(18, 4.2 * len(summary) + 1.2), layout="constrained", squeeze=False
    )
    for row, (name, found) in zip(axes, summary.items(), strict=True):
        row[0].set_title(TITLES[name], loc="left")
        for panel, (quantity, label) in zip(row, PANELS.items(), strict=True):
            if any(quantity in values for values in found.values()):
                _marks(panel, found, quantity)
                panel.set(ylabel=label, xlabel="Price of a prediction (forward passes)", xscale="log", xlim=SHOWN)
                panel.set_xticks(TICKS, [f"{price}" for price in TICKS], minor=False)
                panel.set_xticks([], minor=True)
                panel.grid(visible=True, alpha=0.3)
            else:  # photographs are not turned
                panel.set_axis_off()
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    save(figure, path, record, dpi=80)


def _marks(axes: Axes, found: dict[str, Any], quantity: str) -> None:
    for name, (colour, marker) in STYLES.items():
        if name in found:
            x, y = (
                found[name]["price"],
                found[name].get(OWN_SCORE if quantity == "auroc" else "", found[name][quantity]),
            )
            size = 16 if marker == "*" else 9
            bars = {"xerr": x["std"], "yerr": y["std"]}
            above = 3 if marker == "*" else 2
            axes.errorbar(
                x["mean"], y["mean"], **bars, fmt=marker, color=colour, markersize=size, label=name, zorder=above
            )
