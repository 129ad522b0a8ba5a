"""The paper's figure 2 on its own toy: predictive mean and standard deviation of each method, one panel each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.core.plots import BLUE, GREEN, GREY, ORANGE, Values, save

PURPLE, MOST = "#CC79A7", 4.2  # in the targets' standard deviations
COLUMN = {"full": "Full covariance", "diagonal": "Diagonal", "last layer": "Last layer", "MAP": "MAP"}
ROWS = {
    "wasserstein": ("Wasserstein", ORANGE),
    "wasserstein, live": ("Wasserstein, live", PURPLE),
    "random": ("Random", GREY),
    "greedy": ("Greedy", GREEN),
}
SHARES = "0.5", "0.03", "0.01"


def panels() -> Iterator[tuple[int, int, str, str, str]]:
    """Row, column, method, its title and colour: the first column without selection, then one column a share."""
    for row, (method, title) in enumerate(COLUMN.items()):
        yield row, 0, method, title, BLUE
    for row, (method, (title, colour)) in enumerate(ROWS.items()):
        for column in range(len(SHARES)):
            yield row, column + 1, method, title, colour


def draw(record: Values, path: Path) -> None:
    """Four columns: no selection, and 50, 3 and 1 % of the weights; one row a strategy."""
    run = next(run for run in record["runs"] if "picture" in run)
    figure, axes = plt.subplots(len(ROWS), 4, figsize=(13, 11.5), layout="constrained", sharex=True, sharey=True)
    for row, column, method, title, colour in panels():
        shares = run["picture"]["std"][method]
        share = SHARES[column - 1] if column else next(iter(shares))
        if share not in shares:
            axes[row, column].set_axis_off()
            continue
        count = round(float(share) * run["weights"])
        _panel(axes[row, column], run["picture"], shares[share], colour)
        divergence = run["divergence"][method][share]
        axes[row, column].set_title(f"{title} ({count:,})", fontsize=13)
        if method != "full":
            _note(axes[row, column], divergence)
    axes[0, 0].set_ylim(-MOST, MOST)
    figure.supxlabel("input", fontsize=12)
    figure.supylabel("target", fontsize=12)
    figure.suptitle(
        f"{run['problem']}: mean ± 1 and 2 standard deviations of the predictive; in parentheses, weights with a "
        f"posterior, of {run['weights']:,}\nleft: no selection; right: 50, 3 and 1 % of the weights\ndashed: the full "
        "covariance's two standard deviations; live: without weights of units that no training input activates",
        fontsize=13,
    )
    save(figure, path, record, dpi=110)


def _panel(axes: Axes, picture: dict[str, Any], deviations: list[float], colour: str) -> None:
    x, mean, std = (np.array(values) for values in (picture["x"], picture["mean"], deviations))
    full = np.array(next(iter(picture["std"]["full"].values())))
    axes.scatter(
        picture["data"]["x"],
        picture["data"]["y"],
        s=5,
        color="black",
        alpha=0.25,
        linewidths=0,
        zorder=3,
        rasterized=True,
    )
    for times, opacity in ((2, 0.22), (1, 0.3)):
        axes.fill_between(x, mean - times * std, mean + times * std, color=colour, alpha=opacity, linewidth=0)
    for sign in (-2, 2):
        axes.plot(x, mean + sign * full, color="black", linewidth=0.9, linestyle=(0, (4, 3)))
    axes.plot(x, mean, color=colour, linewidth=1.8, zorder=4)
    axes.set_xlim(x[0], x[-1])


def _note(axes: Axes, divergence: dict[str, float]) -> None:
    """Mean KL from the full covariance, in a corner."""
    text = "KL (nats)\n" + "\n".join(f"{points} {value:.2g}" for points, value in divergence.items())
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 1.5}
    axes.text(0.03, 0.03, text, transform=axes.transAxes, fontsize=9, va="bottom", ha="left", zorder=5, bbox=box)
