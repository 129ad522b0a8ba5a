"""Two pictures: of quality against price, a row for each network, a panel for each kind of quality; and, for who has
ten seconds, of what three methods gain over the plain network on ordinary images and on shifted ones."""

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
PLAIN = "plain network"
GAINS = {"usual": ("Ordinary images", 3), "unseen": ("Shifted images", 2)}  # title, and digits
GAINERS = {"best temperature": "#777777", "ensemble of 5": "#7A6A00", "default bundle": "#D55E00"}
OWN_SCORE = "score_auroc"  # of a bundle, by the score that it rejects by, in place of the entropy
TITLES = {
    "mnist": "MNIST, small CNN; foreign: Fashion-MNIST",
    "fashion": "Fashion-MNIST, small CNN; foreign: MNIST",
    "cifar": "CIFAR-10, narrow ResNet; foreign: CIFAR-100",
}
# Okabe and Ito's colours. Name -> colour, marker.
STYLES: dict[str, tuple[str, str]] = {
    PLAIN: ("black", "o"),
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
    if all({PLAIN, *GAINERS} <= found.keys() for found in summary.values()):
        _draw_gains(record, path.with_stem(f"{path.stem}-gains"))


def _draw_gains(record: Values, path: Path) -> None:
    """Bars of what the means of log-likelihoods gain, one scale for both panels."""
    summary = record["summary"]
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharex=True, sharey=True)
    for panel, (quantity, (title, digits)) in zip(axes, GAINS.items(), strict=True):
        for place, (method, colour) in enumerate(GAINERS.items()):
            gains = [found[method][quantity]["mean"] - found[PLAIN][quantity]["mean"] for found in summary.values()]
            heights = [row + (place - 1) * 0.27 for row in range(len(gains))]
            bars = panel.barh(heights, gains, 0.25, color=colour, label=_with_price(method, summary))
            panel.bar_label(bars, [f"{round(gain, digits) or 0.0:+.{digits}f}" for gain in gains], padding=4)
        panel.set_title(title, loc="left")
        panel.axvline(0, color="black", linewidth=1)
        panel.set_yticks(range(len(summary)), [TITLES[name].split(";")[0] for name in summary])
        panel.set_xlabel("nats an image, above the plain network")
        panel.margins(x=0.22)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(GAINERS), frameon=False)
    save(figure, path, record, dpi=100)


def _with_price(method: str, summary: Values) -> str:
    prices = [found[method]["price"]["mean"] for found in summary.values()]
    least, most = f"{min(prices):.1f}".removesuffix(".0"), f"{max(prices):.1f}".removesuffix(".0")
    passes = "one forward pass" if most == "1" else f"{least if least == most else f'{least} to {most}'} forward passes"
    return f"{method}: {passes}"


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
