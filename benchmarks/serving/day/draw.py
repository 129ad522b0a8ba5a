"""The picture of the day: what the dashboards show, what the replicas took in memory, and which alerts fired."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.core.plots import BLUE, GREEN, GREY, ORANGE, Values, save
from benchmarks.serving.day.plan import MINUTES

PURPLE, YELLOW, PINK, BLACK = "#7b3294", "#e69f00", "#cc79a7", "#000000"
VERSIONS = {"v1": BLUE, "v2": ORANGE}
OTHERS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, PINK, BLACK)
UNITS = {
    "Requests by status": "requests per second",
    "Errors by reason": "errors per second",
    "Latency of predictions": "ms",
    "Examples by version": "examples per second",
    "Reject rate": "share of examples",
    "Conformal p-value": "p-value",
    "Evidence of drift": "log10 of the martingale",
    "Estimated accuracy": "share of examples",
    "Labelled examples": "labels in 30 minutes",
    "Accuracy of labelled examples": "share of labelled examples",
    "Evidence against the expected accuracy": "log10 of the martingale",
}
# Of panels with many lines, those that tell most.
CHOSEN = {
    "Reject rate": r"v\d (rejected|by design)",
    "Conformal p-value": r"v\d p50",
    "Evidence of drift": r"v\d evidence",
    "Estimated accuracy": r"v\d (accepted|held out, at least)",
    "Labelled examples": r"v\d (accepted|rejected)",
    "Accuracy of labelled examples": r"v\d (accepted|accepted, by design)",
}
BY_DECISION, MILLISECONDS, WITH_ALARMS = "Labelled examples", "Latency of predictions", "Evidence of drift"
MEMORY = "Resident memory, from /proc"
COLUMNS, SHADE, PALE = 3, "#f0dcae", "#c8c8c8"


def draw(record: Values, path: Path) -> None:
    """A panel for each query, and below them a bar for each time that an alert fired."""
    panels: dict[str, Any] = record["panels"]
    rows = -(-(len(panels) + 1) // COLUMNS)
    figure = plt.figure(figsize=(17, 3.1 * rows + 2.4), layout="constrained")
    grid = figure.add_gridspec(rows + 1, COLUMNS, height_ratios=[3.1] * rows + [2.4])
    places = iter([figure.add_subplot(grid[place // COLUMNS, place % COLUMNS]) for place in range(rows * COLUMNS)])
    for title, lines in panels.items():
        axes = next(places)
        if title == WITH_ALARMS:
            _alarms(axes.twinx(), lines, record)
            axes.set_zorder(1)  # lines before the area
            axes.patch.set_visible(False)
        _panel(axes, title, _chosen(title, lines), record)
    _memory(next(places), record)
    for unused in places:
        unused.set_axis_off()
    _alerts(figure.add_subplot(grid[rows, :]), record)
    save(figure, path, record, dpi=80)


def _chosen(title: str, lines: dict[str, Any]) -> dict[str, Any]:
    pattern = re.compile(CHOSEN.get(title, ".*"))
    return {legend: values for legend, values in lines.items() if pattern.fullmatch(legend) and legend != "none"}


def _panel(axes: Axes, title: str, lines: dict[str, Any], record: Values) -> None:
    scale = 1000.0 if title == MILLISECONDS else 1.0
    for number, (legend, values) in enumerate(lines.items()):
        version, _, what = legend.partition(" ")
        design = "by design" in what or "held out" in what
        style = "--" if design else ":" if what == "rejected" and title == BY_DECISION else "-"
        colour = VERSIONS.get(version, OTHERS[number % len(OTHERS)])
        y = scale * np.array([np.nan if value is None else value for value in values], float)
        hours = _hours(len(y), record)
        axes.plot(hours, y, style, color=colour, label=legend, linewidth=1.3, marker=_mark(y), markersize=4)
    axes.set_ylabel(UNITS[title])
    _finish(axes, title, record)


def _alarms(axes: Axes, lines: dict[str, Any], record: Values) -> None:
    """On an axis of their own: there are hundreds, where evidence begins anew at 2."""
    alarms = np.array([values for legend, values in lines.items() if legend.endswith("alarms")], float)
    total = np.nansum(alarms, axis=0)
    axes.fill_between(_hours(len(total), record), total, color=PALE, linewidth=0)
    axes.set_ylabel("alarms in 30 minutes (grey)")
    axes.set_ylim(bottom=0)


def _mark(values: Any) -> str:
    """Dots where lines would be too short to be seen."""
    return "." if 0 < np.isfinite(values).sum() < 20 else ""


def _memory(axes: Axes, record: Values) -> None:
    for (instance, found), colour in zip(record["memory"].items(), (BLUE, ORANGE), strict=True):
        y = np.array([np.nan if value is None else value for value in found["points"]], float) / 2**20
        axes.plot(_hours(len(y), record), y, color=colour, label=instance.partition(":")[0], linewidth=1.3)
    axes.set_ylabel("MiB")
    axes.set_ylim(bottom=0)
    _finish(axes, MEMORY, record)


def _alerts(axes: Axes, record: Values) -> None:
    names = {one["alert"] for one in record["alerts"]}
    for one in record["alerts"]:
        end = MINUTES if one["cleared"] is None else one["cleared"]
        colour = VERSIONS.get(f"v{one['labels'].get('version')}", GREY)
        axes.barh(one["alert"], (end - one["fired"]) / 60, left=one["fired"] / 60, color=colour, height=0.6)
    axes.set_ylim(len(names) - 0.4, -2)
    _finish(axes, "Alerts that fire (blue: of version 1, orange: of version 2, grey: of an instance)", record)
    for number, event in enumerate(record["events"]):
        height = -1.5 + 0.7 * (number % 2)
        axes.text(event["minute"] / 60 + 0.06, height, event["name"], fontsize=9, va="center", style="italic")


def _hours(points: int, record: Values) -> Any:
    return np.arange(points) * record["every_minutes"] / 60


def _finish(axes: Axes, title: str, record: Values) -> None:
    """Hours of the day, and a mark or a shade for each event."""
    for event in record["events"]:
        if event["end"] is None:
            axes.axvline(event["minute"] / 60, color=GREY, linewidth=0.8, linestyle=":")
        else:
            axes.axvspan(event["minute"] / 60, event["end"] / 60, color=SHADE, alpha=0.45, linewidth=0, zorder=0)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlim(0, MINUTES / 60)
    axes.set_xticks(range(0, 25, 3), [f"{hour}:00" for hour in range(0, 25, 3)], fontsize=8)
    axes.grid(visible=True, alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7.5, loc="best", framealpha=0.85, ncols=1 + (len(axes.lines) > 6))
