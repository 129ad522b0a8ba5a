"""The picture of the guarantees: rates by class, certified accuracy, coverage of sets and intervals."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.core.plots import BLUE, GREEN, GREY, ORANGE, Values, save

RATE = 0.05
MARKS = {0.9: "o", 0.95: "s", 0.99: "D"}


def draw(record: Values, path: Path) -> None:
    """Three panels; the dashed lines are what was asked for."""
    classes = [row for row in record["rows"] if "sets" in row]
    values = [row for row in record["rows"] if "intervals" in row]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(20, 5.2), layout="constrained")
    _rates(left, classes)
    _accuracy(middle, classes)
    _coverage(right, classes, values)
    for axes in (left, middle, right):
        axes.grid(visible=True, axis="y", alpha=0.3)
        axes.legend(frameon=False)
    save(figure, path, record, dpi=100)


def _rates(axes: Axes, rows: list[Values]) -> None:
    """A dot for each predicted class, at one rate."""
    for kind, colour, label, shift in (
        ("one", ORANGE, "one threshold", -0.15),
        ("by class", BLUE, "a threshold for each class", 0.15),
    ):
        for place, row in enumerate(rows):
            (found,) = (kept for kept in row["rates"] if kept["rule"] == kind and kept["rate"] == RATE)
            shares = 100 * np.array(found["classes"])
            x = np.full(len(shares), place + shift)
            axes.plot(x, shares, "o", color=colour, alpha=0.6, label=_once(label, place))
    axes.axhline(100 * RATE, color=GREY, linestyle="--")
    _names(axes, [row["name"] for row in rows])
    axes.set(ylabel="Rejected (%)", title="False-reject rate of 5 %, by predicted class", ylim=(0, None))


def _accuracy(axes: Axes, rows: list[Values]) -> None:
    """The accuracy of what certified thresholds accept, against what was certified, where anything was."""
    rows = [row for row in rows if any(kept["certified"] for kept in row["certificates"])]
    for place, row in enumerate(rows):
        axes.plot(place - 0.42, 100 * row["accuracy"], "x", color=GREY, label=_once("all inputs", place))
        for at, (kept, colour) in enumerate(zip(row["certificates"], (BLUE, GREEN, ORANGE), strict=True)):
            label = f"certified: {100 * kept['accuracy']:g} %"
            axes.axhline(100 * kept["accuracy"], color=colour, linestyle="--", linewidth=0.8)
            height = np.nan if kept["accepted"] is None else 100 * kept["accepted_accuracy"]
            axes.plot(place + 0.29 * at - 0.2, height, "o", color=colour, label=_once(label, place))
            if kept["accepted"] is not None:
                axes.annotate(
                    f"{100 * kept['accepted']:.0f} %",
                    (place + 0.29 * at - 0.2, height),
                    (0, 6),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7,
                )
    _names(axes, [row["name"] for row in rows])
    axes.set(ylabel="Accuracy (%)", title="Certified accuracy; labels: share that is accepted")


def _coverage(axes: Axes, classes: list[Values], values: list[Values]) -> None:
    """Coverage minus level, in points; a mark for each level."""
    for place, row in enumerate([*classes, *values]):
        for at, (level, mark) in enumerate(MARKS.items()):
            for label, colour, coverage in _coverages(row, level):
                axes.plot(
                    place + 0.2 * (at - 1),
                    100 * (coverage - level),
                    mark,
                    color=colour,
                    label=_once(label, at) if row in (classes[:1] + values[:1]) else None,
                )
    axes.axhline(0, color=GREY, linestyle="--")
    _names(axes, [row["name"] for row in [*classes, *values]])
    axes.set(ylabel="Coverage minus level (points)", title="Coverage: 90 % (circle), 95 % (square), 99 % (diamond)")


def _coverages(row: Values, level: float) -> list[tuple[str, str, float]]:
    if "sets" in row:
        (found,) = (kept for kept in row["sets"] if kept["level"] == level and kept["kind"] == "tuned")
        return [("prediction sets", GREEN, found["coverage"])]
    (found,) = (kept for kept in row["intervals"] if kept["level"] == level)
    return [("conformal intervals", BLUE, found["conformal"]), ("Gaussian intervals", ORANGE, found["gaussian"])]


def _names(axes: Axes, names: list[Any]) -> None:
    axes.set_xticks(range(len(names)), [name.replace("-MNIST", "-\nMNIST") for name in names])
    axes.set_xlim(-0.6, len(names) - 0.4)


def _once(label: str, place: int) -> str | None:
    """One entry of the legend, not one for each data set."""
    return label if place == 0 else None
