"""Log-likelihood against the shift, a line for each size of subnetwork and ensemble."""

from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.core.plots import Values, save
from paper.images.plot import AXES, TICKS, TITLES
from paper.images.sizes import summarise

KINDS = {"subnetworks": ("Subnetworks, S =", "viridis"), "ensembles": ("Ensembles, networks:", "plasma")}


def draw(record: Values, path: Path) -> None:
    """A row for each problem; means over the seeds."""
    problems = record["problems"]
    figure, places = plt.subplots(
        len(problems), 2, figsize=(13, 4.8 * len(problems)), layout="constrained", squeeze=False, sharey="row"
    )
    for row, found in zip(places, problems.values(), strict=True):
        for axes, (kind, (title, colours)) in zip(row, KINDS.items(), strict=True):
            _lines(axes, summarise(found["runs"])[kind], colours)
            axes.set(xlabel=AXES[found["published"]], ylabel="log-likelihood (nats)")
            axes.set_xticks(TICKS[found["published"]])
            axes.set_title(f"{TITLES[found['published']]}, {found['scale']['network']}")
            axes.legend(title=title, fontsize=9)
            axes.grid(alpha=0.3)
    save(figure, path, record, dpi=90)


def _lines(axes: Axes, rows: dict[str, Any], colours: str) -> None:
    shades = plt.get_cmap(colours)
    for number, (size, row) in enumerate(rows.items()):
        shift = {int(strength): found["log_likelihood"]["mean"] for strength, found in row["shifts"].items()}
        colour = shades(number / max(1, len(rows)))
        axes.plot(list(shift), list(shift.values()), "-o", ms=3, color=colour, label=f"{int(size):,}")
