"""Divergence from the full network against the share of weights, one panel a data set, one line a strategy."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.core.plots import Values, save
from benchmarks.experiments.selection.summary import NOTHING, cells, geometric

# Okabe and Ito's colours; what matters most is drawn thick.
STYLES: dict[str, tuple[str, str, float]] = {
    "wasserstein-swag": ("black", "-", 2.2),
    "wasserstein-laplace": ("#888888", "--", 1.2),
    "wasserstein-exact": ("#888888", ":", 1.2),
    "gradient": ("#E69F00", "-", 1.6),
    "novelty": ("#CC79A7", "-", 1.6),
    "leverage": ("#0072B2", "-", 2.2),
    "leverage, sampled": ("#0072B2", ":", 1.6),
    "magnitude": ("#7A6A00", "--", 1.2),
    "random": ("#56B4E9", ":", 1.2),
    "random live": ("#56B4E9", "-", 1.2),
    "greedy": ("#D55E00", "-", 2.2),
}
EXPLAINED = {
    "subnetwork": "prior precision scaled by S / D, as in the paper",
    "none": "prior precision not scaled",
}


def draw(record: Values, path: Path) -> None:
    """One figure for each scaling of the prior: NAME_subnetwork.png and NAME_none.png."""
    for scaling in EXPLAINED:
        draw_scaling(record, scaling, path.with_stem(f"{path.stem}_{scaling}"))


def draw_scaling(record: Values, scaling: str, path: Path) -> None:
    """One figure for one scaling of the prior; geometric means over seeds."""
    runs = record["runs"]
    panels = cells(runs)
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.6 * columns, 4.2 * rows + 1), layout="constrained", squeeze=False
    )
    for place, (label, where) in zip(axes.flat, panels.items(), strict=False):
        _panel(place, runs, scaling, label, *where)
    for place in axes.flat[len(panels) :]:
        place.remove()
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=10)
    figure.suptitle(f"Subnetwork against full network, {EXPLAINED[scaling]} (lower is better)")
    save(figure, path, record, dpi=90)


def _panel(axes: Axes, runs: list[dict[str, Any]], scaling: str, label: str, problem: str, points: str) -> None:
    chosen = [run["divergence"] for run in runs if run["problem"] == problem]
    for name, (colour, line, width) in STYLES.items():
        shares = list(chosen[0][name])
        values = [geometric([d[name][share][scaling][points] for d in chosen]) for share in shares]
        values = [max(value, NOTHING) for value in values]
        axes.plot(
            100 * np.array(shares, float), values, line, color=colour, linewidth=width, marker="o", ms=3, label=name
        )
    total = next(run["weights"] for run in runs if run["problem"] == problem)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([1, 3, 10, 50], ["1", "3", "10", "50"])
    axes.minorticks_off()
    axes.set(xlabel="share of the weights (%)", ylabel="mean KL (nats)", title=f"{label} points, D = {total:,}")
    axes.grid(alpha=0.3)
