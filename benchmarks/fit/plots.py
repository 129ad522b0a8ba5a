"""Plots of the fit's benchmarks."""

import math
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from benchmarks.core.plots import BLUE, GREEN, GREY, ORANGE, Values, readable, save

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


def floor(result: Values, path: Path) -> None:
    """Jacobian over forward time by batch size, with the floor and the goal."""
    figure, axis = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    for engine, colour in (("torch", ORANGE), ("onnxruntime", BLUE)):
        rows = [row for row in result["rows"] if row["engine"] == engine]
        x = [row["batch"] for row in rows]
        axis.plot(x, [row["ratio"] for row in rows], "o-", color=colour, label=f"{engine} (Jacobian / forward)")
    bound, goal = result["floor"], result["goal"] * result["floor"]
    axis.axhline(bound, color=GREY, label=f"1 + 2 K = {bound}")
    axis.axhline(goal, color=GREY, linestyle=":", label=f"goal: {result['goal']} times that, {goal:g}")
    axis.set_xscale("log", base=2)
    axis.set(xlabel="batch size", ylabel="time of a Jacobian in forward passes", title=result["workload"])
    axis.set_xticks([row["batch"] for row in result["rows"]])
    axis.get_xaxis().set_major_formatter("{x:.0f}")
    axis.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    save(figure, path, result)


def growth(result: Values, path: Path) -> None:
    """Log-log panels of time and memory against S, N and D, with the fitted slope of the last points."""
    axes = result["axes"]
    figure, panels = plt.subplots(2, len(axes), figsize=(4.6 * len(axes), 8), layout="constrained")
    for column, found in enumerate(axes):
        seconds = [row["median_seconds"] for row in found["rows"]]
        mebibytes = [row["peak_bytes"] / 2**20 for row in found["rows"]]
        curve(panels[0][column], found, seconds, "time", "seconds of a fit")
        curve(panels[1][column], found, mebibytes, "memory", "peak memory above the model, MiB")
    save(figure, path, result)


def curve(axis: Any, found: Values, y: list[float], kind: str, label: str) -> None:
    x, slope = found["x"], found[f"{kind}_slope"]
    least, most = found[f"expected_{kind}_slope"]
    expected = f"{least:g}" if least == most else f"{least:g} to {most:g}"
    axis.plot(x, y, "o-", color=BLUE)
    tail = min(3, len(x))
    middle = math.exp(sum(math.log(value) for value in x[-tail:]) / tail)
    height = math.exp(sum(math.log(value) for value in y[-tail:]) / tail)
    line = [height * (value / middle) ** slope for value in (x[-tail], x[-1])]
    axis.plot((x[-tail], x[-1]), line, "--", color=ORANGE, linewidth=2)
    axis.set(xscale="log", yscale="log", xlabel=f"{found['axis']}", ylabel=label)
    axis.set_title(f"slope of the last {tail}: {slope:.2f}\nby the formula: {expected}", fontsize=11)
    axis.set_ylim(min(y) / 3, max(y) * 3)
    axis.grid(visible=True, which="major", alpha=0.3)
