"""Plots of the service under load."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.core.plots import BLUE, GREEN, GREY, ORANGE, readable, save
from benchmarks.core.settings import Values

LEVELS = (("p50", BLUE), ("p95", GREEN), ("p99", ORANGE))
SHARES = {
    "of_session": ("of the examples a second of the bare session", BLUE),
    "of_plain": ("of the same, plain network", GREEN),
    "of_empty_route": ("of the requests a second of an empty route", GREY),
}


def load(result: Values, path: Path) -> None:
    """Saturation as shares of what it cannot exceed; latencies at half load."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained")
    ratios = result["saturation"]["ratios"]
    _shares(axes[0], ratios)
    half = result["half_load"]
    _latencies(axes[1], [one["request"] for one in half], [one["latency"] for one in half])
    axes[1].set(title="latency at half load")
    save(figure, path, result)


def against_servers(result: Values, path: Path) -> None:
    """Saturation, memory, and latency at each load, one row a server."""
    loads = result["offered"]["loads"]
    figure, axes = plt.subplots(1, 2 + len(loads), figsize=(4.2 * (2 + len(loads)), 4), layout="constrained")
    by_connections = result["saturation"]["requests_per_second"]
    most, rates = max(by_connections.items(), key=lambda one: int(one[0]))
    names, rounds = list(rates), result["saturation"]["rounds"]
    _bars(axes[0], names, list(rates.values()), BLUE)
    axes[0].set(xlabel="requests a second (more is better)", title=f"saturation, {most} connections")
    _bars(axes[1], names, [median(turn[name]["peak_rss_bytes"] for turn in rounds) / 2**20 for name in names], GREY)
    axes[1].set(xlabel="resident sets, MiB (less is better)", title="peak memory")
    for axis, load_, found in zip(axes[2:], loads, result["loads"], strict=True):
        _latencies(axis, [_with_failures(*one) for one in found.items()], [one["latency"] for one in found.values()])
        axis.set(title=f"{load_['rate']:.0f} requests a second\n({load_['share']:.0%} of the {load_['of']})")
    save(figure, path, result)


def soak(result: Values, path: Path) -> None:
    """Memory, and answers in each second, over time."""
    figure, axes = plt.subplots(2, 1, figsize=(11, 6.5), sharex=True, layout="constrained")
    memory = result["memory"]
    axes[0].plot(memory["seconds"], [size / 2**20 for size in memory["rss_bytes"]], color=BLUE)
    axes[0].axvline(memory["settled_from_seconds"], color=GREY, linestyle=":")
    axes[0].set(ylabel="resident set, MiB", ylim=(0, None))
    axes[0].set_title(f"growth from the dotted line to the end: {memory['growth']:+.1%}")
    for (name, counts), colour in zip(result["rates"].items(), (BLUE, ORANGE, GREY), strict=True):
        axes[1].plot(counts, color=colour, label=name)
    axes[1].set(xlabel="seconds", ylabel="answers in each second", ylim=(0, None))
    axes[1].legend(frameon=False, ncols=3)
    save(figure, path, result)


def _shares(axis: Any, ratios: Values) -> None:
    """The service's speed over each of the speeds that it cannot exceed, one group of bars a form of request."""
    for number, (key, (label, colour)) in enumerate(SHARES.items()):
        places = [place for place, one in enumerate(ratios.values()) if key in one]
        values = [one[key] for one in ratios.values() if key in one]
        heights = [place + (number - 1) * 0.26 for place in places]
        axis.barh(heights, values, height=0.24, color=colour, label=label)
        for height, value in zip(heights, values, strict=True):
            axis.text(value, height, f" {readable(value)}", va="center", fontsize=8)
    _rows(axis, list(ratios))
    axis.set(xlabel="share", title="saturation", xlim=(0, 1.1))
    axis.legend(frameon=False, fontsize=8)


def _with_failures(name: str, found: Values) -> str:
    failed = sum(count for outcome, count in found["outcomes"].items() if outcome != "200")
    return f"{name}\n{failed} failed" if failed else name


def _bars(axis: Any, names: Sequence[str], values: Sequence[float], colour: str) -> None:
    axis.barh(range(len(names)), values, height=0.6, color=colour)
    for place, value in enumerate(values):
        axis.text(value, place, f" {readable(value)}", va="center", fontsize=8)
    _rows(axis, names)
    axis.margins(x=0.15)


def _latencies(axis: Any, names: Sequence[str], latencies: Sequence[Values]) -> None:
    for place, latency in enumerate(latencies):
        for level, colour in LEVELS if latency else ():
            axis.plot(1000 * latency[level], place, "o", color=colour, label=level if not place else None)
    _rows(axis, names)
    axis.set(xscale="log", xlabel="milliseconds from the due moment")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.legend(frameon=False, fontsize=8)
    axis.grid(visible=True, axis="x", alpha=0.3)


def _rows(axis: Any, names: Sequence[str]) -> None:
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.spines[["top", "right"]].set_visible(False)
