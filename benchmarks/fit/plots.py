"""Plots of the fit's benchmarks."""

from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from benchmarks.core.plots import BLUE, GREEN, GREY, Values, readable, save

COLOURS = (GREY, BLUE, GREEN)


def against_laplace(result: Values, path: Path) -> None:
    """Seconds per example and memory of each method, one row per comparison, on logarithmic axes."""
    height = 1.5 + 0.85 * len(result["races"])
    figure, axes = plt.subplots(1, 2, figsize=(13, height), sharey=True, layout="constrained")
    labels, ticks = [], []
    for number, race in enumerate(reversed(result["races"])):
        labels.append(race["name"].replace(": ", "\n"))
        ticks.append(number)
        for place, measured in enumerate(race["measurements"]):
            ratio = race["ratios"][place - 1] if place else None
            bar(axes[0], number, place, 1000 * measured["median_seconds_per_example"], ratio, "faster")
            bar(axes[1], number, place, measured["peak_bytes"] / 2**20, ratio, "less_memory")
    axes[0].set(xscale="log", xlabel="milliseconds an example (less is better)", yticks=ticks)
    axes[0].set_yticklabels(labels)
    axes[1].set(xscale="log", xlabel="peak memory above model and imports, MiB (less is better)")
    for axis in axes:
        axis.margins(x=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    names = ("laplace-torch", "probity (fit; served with onnxruntime)", "probity, eager")
    handles = [Patch(color=colour) for colour in COLOURS]
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    save(figure, path, result)


def bar(axis: Any, number: int, place: int, value: float, ratio: Values | None, key: str) -> None:
    y = number + 0.27 * (1 - place)
    value = max(value, 1e-3)
    axis.barh(y, value, height=0.25, color=COLOURS[place])
    axis.text(value, y, f" {readable(value)}" + (compared(ratio[key]) if ratio else ""), va="center", fontsize=8)


def compared(ratio: float) -> str:
    """The baseline's value over this one, in words."""
    return f"  ({ratio:.1f} times less)" if ratio >= 1 else f"  ({1 / ratio:.1f} times more)"
