"""Fit and predict against laplace-torch: seconds per example and memory, on four workloads.

Answers are compared first; then each method has its best batch size, and they take turns.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.core.harness import Measurement, MeasurementError, MethodSpec, call, sweep, take_turns
from benchmarks.core.settings import Settings, Values
from benchmarks.fit.workloads import Workload

BATCHES, QUICK_BATCHES = (1, 2, 4, 8, 16, 32), (1, 2)
REPETITIONS = 3
TOLERANCE = 2e-3  # float32 Jacobians and a float32 factor on either side
LAST_BLOCK, MINIATURE_LAST_BLOCK = ("layer4.1.", "head."), ("layer2.0.", "head.")


@dataclass(frozen=True)
class Scenario:
    """A workload, and its miniature."""

    name: str
    workload: Workload
    miniature: Workload


SCENARIOS = (
    Scenario("small CNN, S = 1,000", Workload("small-cnn", 1000), Workload("small-cnn", 100, size="miniature")),
    Scenario("ResNet-18, S = 2,000 anywhere", Workload("resnet18", 2000), Workload("resnet18", 100, size="miniature")),
    Scenario(
        "ResNet-18, S = 2,000 in the last block",
        Workload("resnet18", 2000, LAST_BLOCK),
        Workload("resnet18", 100, MINIATURE_LAST_BLOCK, size="miniature"),
    ),
    Scenario("BERT, S = 2,000 anywhere", Workload("bert", 2000), Workload("bert", 100, size="miniature")),
)


def run(settings: Settings) -> Values:
    """Fit and predict of each scenario."""
    pairs = [(scenario, kind) for scenario in SCENARIOS for kind in ("fit", "predict")]
    found = []
    for scenario, kind in settings.track(pairs, "Against laplace-torch", len(pairs)):
        workload = settings.choose(scenario.workload, scenario.miniature)
        found.append({"scenario": scenario.name, "kind": kind, **compare(methods(settings, workload, kind), settings)})
    return {"comparisons": found}


def methods(settings: Settings, workload: Workload, kind: str) -> tuple[MethodSpec, MethodSpec]:
    """laplace-torch first, as the baseline."""
    values: dict[str, Any] = {"workload": workload.as_json()}
    if kind == "fit":
        return (
            MethodSpec("laplace-torch", "benchmarks.fit.laplace_torch:Fit", values),
            MethodSpec("demur", "benchmarks.fit.methods:Fit", values),
        )
    folder = settings.scratch / workload.name
    folder.mkdir()
    call("benchmarks.fit.exports:write", {**values, "folder": str(folder)}, settings.threads)
    return (
        MethodSpec("laplace-torch", "benchmarks.fit.laplace_torch:Predict", values),
        MethodSpec("demur served", "benchmarks.fit.onnx_methods:Predict", {"folder": str(folder)}),
    )


def compare(both: tuple[MethodSpec, MethodSpec], settings: Settings) -> Values:
    """How many times faster than the baseline the other is, by the medians, and how many times less memory it takes."""
    batches, threads = settings.choose(BATCHES, QUICK_BATCHES), settings.threads
    swept = [sweep(method, batches, threads) for method in both]
    difference = largest_difference(*(table.answer for table in swept))
    if not difference <= TOLERANCE:
        raise MeasurementError(
            f"{both[1].target}: found answers that differ by {difference:.1e} of the largest, expected at most "
            f"{TOLERANCE:.0e}; they do not compute the same thing"
        )
    measured = take_turns(both, [table.best for table in swept], settings.choose(REPETITIONS, 1), threads)
    baseline, other = measured
    return {
        "largest_difference": difference,
        "measurements": [_as_json(one) for one in measured],
        "faster": baseline.median / other.median,
        "less_memory": baseline.peak_bytes / max(1, other.peak_bytes),
    }


def _as_json(measured: Measurement) -> Values:
    return {**asdict(measured), "median_seconds_per_example": measured.median}


def largest_difference(first: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference from the first answer, relative to its largest value."""
    scale = max(abs(value) for value in first)
    if len(other) != len(first) or not math.isfinite(scale) or scale == 0:
        return math.inf
    return max(abs(a - b) for a, b in zip(first, other, strict=True)) / scale
