"""The toys with a gap: 95 % intervals of each method, and where inputs are rejected."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.core.plots import BLUE, GREEN, GREY, ORANGE, Values, save
from paper.gaps.data import TOYS
from paper.gaps.quality import Z

PURPLE, MOST = "#CC79A7", 6.0  # in the targets' standard deviations
SHOWN = {
    "noise alone": GREY,
    "ensemble of 5": PURPLE,
    "full covariance": BLUE,
    "added weights": GREEN,
    "both (default)": ORANGE,
}


def draw(record: Values, path: Path) -> None:
    """One column a toy, one row a method.

    The results under version control lack the intervals: where only some data sets were measured again, the picture
    stays as it is.
    """
    runs = [run for run in record["runs"] if run["split"] == 0 and run["problem"] in TOYS]
    if not runs or not all("picture" in run for run in runs):
        return
    size = (3.6 * len(runs) + 0.6, 2.3 * len(SHOWN) + 0.8)
    figure, axes = plt.subplots(len(SHOWN), len(runs), figsize=size, layout="constrained", squeeze=False)
    for column, run in enumerate(runs):
        for row, (label, colour) in enumerate(SHOWN.items()):
            _panel(axes[row, column], run["picture"][label], colour)
            if row == 0:
                axes[row, column].set_title(run["problem"], fontsize=12)
            if column == 0:
                axes[row, column].set_ylabel(label, fontsize=11)
    figure.suptitle(
        "95 % intervals around the network's mean; black: rows to train on; red: rows inside the gap\n"
        "dark bar at the bottom: inputs that are rejected at a false-reject rate of 5 %",
        fontsize=12,
    )
    save(figure, path, record, dpi=90)


def _panel(axes: Axes, found: dict[str, Any], colour: str) -> None:
    x, mean, std = (np.array(found[name]) for name in ("x", "mean", "std"))
    axes.fill_between(x, mean - Z * std, mean + Z * std, color=colour, alpha=0.3, linewidth=0)
    axes.plot(x, mean, color=colour, linewidth=1.5)
    for part, ink in (("train", "black"), ("gap", "#cc0000")):
        axes.plot(*found["data"][part], ".", color=ink, markersize=2.5, alpha=0.6)
    rejected = np.array(found["rejected"], bool)
    axes.fill_between(x, -MOST, -0.93 * MOST, where=rejected, color="#333333", linewidth=0, step="mid")
    axes.set(xlim=(x.min(), x.max()), ylim=(-MOST, MOST))
    axes.grid(alpha=0.25)
