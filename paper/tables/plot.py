"""The paper's figure 3: test log-likelihood against the number of weights with a posterior, one panel a table."""

from pathlib import Path
from typing import Any, Literal

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from benchmarks.core.plots import BLUE, GREEN, ORANGE, Values, save
from paper.tables.summary import summarise

NETWORKS = {"50x1": ("#E69F00", "o"), "100x1": (GREEN, "s"), "50x2": (BLUE, "^"), "100x2": (ORANGE, "D")}
LineStyle = Literal["-", "--", ":"]
METHODS: dict[str, tuple[LineStyle, float]] = {
    "wasserstein": ("-", 1.8),
    "wasserstein, live": ("--", 1.3),
    "leverage": (":", 1.6),
}
LINEAR_UP_TO = 300  # of the horizontal axis, which is logarithmic from there on
APART = 1.03, 5.0  # a factor and weights: networks of one size beside one another, so that their error bars can be seen


def draw(record: Values, path: Path) -> None:
    """Two rows, standard and gap splits; markers are networks, lines are strategies."""
    panels = summarise(record["runs"])
    kinds = [kind for kind in ("standard", "gap") if any(name.endswith(kind) for name in panels)]
    tables = list(dict.fromkeys(name.partition("-")[0] for name in panels))
    figure, axes = plt.subplots(
        len(kinds),
        len(tables),
        figsize=(4.6 * len(tables) + 0.6, 3.9 * len(kinds) + 1.2),
        layout="constrained",
        squeeze=False,
    )
    for row, kind in enumerate(kinds):
        for column, table in enumerate(tables):
            if (name := f"{table}-{kind}") in panels:
                _panel(axes[row, column], panels[name], name)
            else:
                axes[row, column].set_axis_off()
    figure.supxlabel("weights with a posterior (0: MAP; last of each network: full covariance)", fontsize=12)
    figure.supylabel("test log-likelihood (nats, original units)", fontsize=12)
    figure.legend(handles=_legend(), loc="outside upper center", ncols=4, fontsize=11)
    save(figure, path, record, dpi=110)


def _panel(axes: Axes, networks: dict[str, Any], name: str) -> None:
    splits = next(iter(networks.values()))["splits"]
    for place, (network, found) in enumerate(networks.items()):
        colour, marker = NETWORKS[network]
        for method, (line, width) in METHODS.items():
            entries = found.get(method, found["full"] if method == "wasserstein" else [])
            if not entries:
                continue
            errors = [entry["stderr"] or 0.0 for entry in entries] if method == "wasserstein" else None
            axes.errorbar(
                [APART[0] ** place * entry["S"] + APART[1] * place for entry in entries],
                [entry["mean"] for entry in entries],
                yerr=errors,
                linestyle=line,
                linewidth=width,
                color=colour,
                marker=marker if method == "wasserstein" else None,
                markersize=6.5,
                elinewidth=0.8,
                capsize=2.5,
                alpha=0.85,
            )
    sizes = sorted(found["weights"] for found in networks.values())
    axes.set_xscale("symlog", linthresh=LINEAR_UP_TO)
    axes.set_xticks([0, *sizes])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelsize=9)
    axes.set_title(f"{name.replace('-', ', ')} splits ({splits})", fontsize=13)
    axes.grid(alpha=0.3)


def _title(network: str) -> str:
    width, _, depth = network.partition("x")
    return f"{depth} x {width} units"


def _legend() -> list[Line2D]:
    networks = [
        Line2D([], [], color=colour, marker=marker, label=_title(name)) for name, (colour, marker) in NETWORKS.items()
    ]
    methods = [
        Line2D([], [], color="black", linestyle=line, linewidth=width, label=method)
        for method, (line, width) in METHODS.items()
    ]
    return [*networks, *methods]
