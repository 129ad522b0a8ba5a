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
TITLES = {"mnist": "MNIST, small CNN; foreign: Fashion-MNIST", "cifar": "CIFAR-10, narrow ResNet; foreign: CIFAR-100"}
# Okabe and Ito's colours. Name -> colour, marker.
STYLES: dict[str, tuple[str, str]] = {
    "plain network": ("black", "o"),
    "MC dropout, 16 samples": ("#888888", "s"),
    "ensemble of 5": ("#7A6A00", "s"),
    "last layer, laplace-torch": ("#E69F00", "s"),
    "auto, at most 3 passes": ("#D55E00", "*"),
    "auto, at most 3 passes, any variances": ("#D55E00", "X"),
    "auto, at most 3 passes, 0.02 nats": ("#D55E00", "d"),
    "auto": ("#D55E00", "P"),
    "novelty-sampling anywhere": ("#CC79A7", "D"),
    "novelty-sampling anywhere, margin": ("#CC79A7", "v"),
    "novelty-sampling in the head": ("#CC79A7", "^"),
    "random live anywhere": ("#56B4E9", "D"),
    "wasserstein-swag anywhere": ("#0072B2", "D"),
    "gradient anywhere": ("#009E73", "D"),
}


def draw(record: Values, path: Path) -> None:
    """Means over seeds, bars one standard deviation."""
    summary = record["summary"]
    figure, axes = plt.subplots(
        len(summary), len(PANELS), figsize=(18, 4.8 * len(summary)), layout="constrained", squeeze=False
    )
    for row, (name, found) in zip(axes, summary.items(), strict=True):
        row[0].set_title(TITLES[name], loc="left")
        for panel, (quantity, label) in zip(row, PANELS.items(), strict=True):
            if all(quantity in values for values in found.values()):
                _marks(panel, found, quantity)
                panel.set(ylabel=label, xlabel="Price of a prediction (forward passes)", xscale="log")
                panel.xaxis.set_major_formatter("{x:g}")
                panel.grid(visible=True, alpha=0.3)
            else:  # photographs are not turned
                panel.set_axis_off()
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save(figure, path, record, dpi=100)


def _marks(axes: Axes, found: dict[str, Any], quantity: str) -> None:
    for name, (colour, marker) in STYLES.items():
        if name in found:
            x, y = found[name]["price"], found[name][quantity]
            size = 16 if marker == "*" else 9
            bars = {"xerr": x["std"], "yerr": y["std"]}
            axes.errorbar(x["mean"], y["mean"], **bars, fmt=marker, color=colour, markersize=size, label=name)
