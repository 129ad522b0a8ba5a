"""How time and memory of the fit grow with S, N and D, beside what the formulas say.

With t_f the time of a forward pass: a fit of N examples takes N (t_J + K S^2) with t_J about (1 + 2 K) t_f, and t_f
grows as the network's multiply-adds: between its width (the first layer, what is done by element) and its width
squared, so between the square root of D and D. Memory beside the model: S^2 for H_S, a bounded number of rows of S,
activations that grow with the width, copies of the weights; none of it with N.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Any

from benchmarks.core.harness import Process
from benchmarks.core.settings import Settings, Values
from benchmarks.fit.workloads import Workload

BATCH, EXAMPLES = 16, 64
REPETITIONS = 3
SLOPE_POINTS = 3  # a power law shows where its term has outgrown the others: at the end


@dataclass(frozen=True)
class Axis:
    """What grows: values for a full and a quick run; the slopes that the formulas give at the end of the range.

    Slopes are pairs (least, most): between them where two terms take turns.
    """

    name: str
    values: tuple[int, ...]
    quick: tuple[int, ...]
    time_slope: tuple[float, float]
    memory_slope: tuple[float, float]


AXES = (
    Axis("S", (100, 300, 1000, 3000, 10000), (50, 100), (0.0, 2.0), (0.0, 2.0)),
    Axis("N", (64, 128, 256, 512, 1024), (16, 32), (1.0, 1.0), (0.0, 0.0)),
    Axis("width", (8, 16, 32, 64, 128), (4, 8), (0.5, 1.0), (0.0, 1.0)),
)


def point(axis: str, value: int) -> tuple[Workload, int]:
    """The workload and the number of examples where `axis` has this value and the others rest."""
    if axis == "S":
        return Workload("small-cnn", value), EXAMPLES
    if axis == "N":
        return Workload("small-cnn", 1000), value
    return Workload("small-cnn", 1000 if value >= 8 else 500, width=value), EXAMPLES


def run(settings: Settings) -> Values:
    """One process a point, so that each has a peak of its own."""
    points = [(axis, value) for axis in AXES for value in settings.choose(axis.values, axis.quick)]
    rows: dict[str, list[Values]] = {axis.name: [] for axis in AXES}
    for axis, value in settings.track(points, "Growth of the fit", len(points)):
        rows[axis.name].append(measure(axis.name, value, settings))
    return {"batch": BATCH, "axes": [summary(axis, rows[axis.name]) for axis in AXES]}


def measure(axis: str, value: int, settings: Settings) -> Values:
    """Seconds of a whole fit, and the peak above the model."""
    workload, examples = point(axis, value)
    batches = -(-examples // BATCH)
    with Process("benchmarks.fit.methods:Fit", {"workload": workload.as_json()}, settings.threads) as process:
        process.ask("step", batch=BATCH, batches=1)
        times = [
            float(process.ask("step", batch=BATCH, batches=batches)["seconds"])
            for _ in range(settings.choose(REPETITIONS, 1))
        ]
        peak = process.ask("peak")["bytes"]
    weights = sum(p.numel() for p in workload.model().parameters())
    return {
        "value": value,
        "D": weights,
        "S": workload.weights,
        "N": batches * BATCH,
        "seconds": times,
        "median_seconds": statistics.median(times),
        "peak_bytes": peak,
    }


def summary(axis: Axis, rows: list[Values]) -> dict[str, Any]:
    """The rows, and slopes in log-log coordinates: against D where the width grows."""
    x = [float(row["D"] if axis.name == "width" else row["value"]) for row in rows]
    return {
        "axis": "D" if axis.name == "width" else axis.name,
        "x": x,
        "rows": rows,
        "time_slope": slope(x, [row["median_seconds"] for row in rows]),
        "memory_slope": slope(x, [row["peak_bytes"] for row in rows]),
        "expected_time_slope": axis.time_slope,
        "expected_memory_slope": axis.memory_slope,
    }


def slope(x: list[float], y: list[float]) -> float:
    """Least squares of log y on log x over the last points."""
    pairs = [(math.log(a), math.log(max(b, 1e-12))) for a, b in zip(x, y, strict=True)][-SLOPE_POINTS:]
    return statistics.linear_regression(*zip(*pairs, strict=True)).slope
