"""The picture of the MNIST experiment: log-likelihood against the angle, and AUROC for foreign data."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.core.plots import Values, save
from benchmarks.experiments.mnist.summary import ANGLES, PAPER

# Okabe and Ito's colours; what is compared first is drawn thick. Name -> colour, line, width.
STYLES: dict[str, tuple[str, str, float]] = {
    "plain network": ("black", ":", 2.0),
    "wasserstein-swag": ("black", "-", 2.0),
    "wasserstein-laplace": ("#888888", "--", 1.2),
    "gradient": ("#E69F00", "-", 1.2),
    "novelty": ("#CC79A7", "-", 1.2),
    "novelty-sampling": ("#CC79A7", "-", 2.4),
    "leverage": ("#0072B2", "-", 1.2),
    "greedy": ("#009E73", "-", 1.2),
    "magnitude": ("#7A6A00", "--", 1.2),
    "random": ("#56B4E9", ":", 1.2),
    "random live": ("#56B4E9", "-", 1.2),
    "random live, last block + head": ("#0072B2", "--", 1.2),
    "random live, head": ("#009E73", "--", 1.2),
    "last-layer": ("#CC79A7", "--", 1.2),
    "auto": ("#D55E00", "-", 3.0),
    "auto, told of rotation": ("#D55E00", "--", 3.0),
}
FOREIGN = {
    "90": ("o", "#0072B2", "digits turned by 90°"),
    "180": ("s", "#E69F00", "digits turned by 180°"),
    "fashion": ("^", "#009E73", "Fashion-MNIST"),
}
TITLES = {"cnn": "Small CNN", "resnet": "Small ResNet"}
PAPERS = "ours, S = 42,438"


def draw(record: Values, path: Path) -> None:
    """Two rows (networks), two columns; means over seeds, bars one standard deviation."""
    names = list(dict.fromkeys(run["network"] for run in record["runs"]))
    figure, axes = plt.subplots(len(names), 2, figsize=(16, 6.5 * len(names)), layout="constrained", squeeze=False)
    for row, name in zip(axes, names, strict=True):
        runs = [run for run in record["runs"] if run["network"] == name]
        seeds = f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"
        _curves(row[0], runs)
        _marks(row[1], runs)
        row[0].set_title(f"{TITLES[name]}, D = {runs[0]['weights']:,}, S = 750, {seeds}")
    save(figure, path, record, dpi=100)


def _shared(runs: list[dict[str, Any]]) -> list[str]:
    return [name for name in STYLES if all(name in run["strategies"] for run in runs)]


def _curves(axes: Axes, runs: list[dict[str, Any]]) -> None:
    for name in _shared(runs):
        colour, line, width = STYLES[name]
        scores = [run["strategies"][name]["log_likelihood"] for run in runs]
        means = {int(angle): float(np.mean([score[angle] for score in scores])) for angle in ANGLES}
        axes.plot(list(means), list(means.values()), line, color=colour, linewidth=width, label=name)
    paper = PAPER["log_likelihood"][PAPERS]
    axes.plot([int(angle) for angle in paper], list(paper.values()), "kx", label="the paper's, ResNet-18, S = 42,438")
    axes.set(xlabel="rotation of the test digits (degrees)", ylabel="mean log-likelihood (nats), higher is better")
    axes.set_xticks(range(0, 181, 30))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3)


def _marks(axes: Axes, runs: list[dict[str, Any]]) -> None:
    names = _shared(runs)
    places = np.arange(len(names))
    for offset, (key, (marker, colour, label)) in enumerate(FOREIGN.items()):
        table = np.array([[run["strategies"][name]["auroc"][key] for name in names] for run in runs])
        height = places + (offset - 1) * 0.2
        axes.errorbar(table.mean(0), height, xerr=table.std(0), fmt=marker, color=colour, label=label)
    costs = [float(np.mean([run["strategies"][name]["forward_passes"] for run in runs])) for name in names]
    axes.set_yticks(places, [f"{name}  ({cost:.1f})" for name, cost in zip(names, costs, strict=True)])
    axes.invert_yaxis()
    axes.set(
        xlabel="AUROC of the predictive entropy against upright digits, higher is better",
        title="Telling foreign inputs apart (in brackets: forward passes)",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
