"""A comparison of methods that compute the same: answers first, then each at its best batch size, taking turns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.core.harness import Measurement, MeasurementError, MethodSpec, sweep, take_turns

TOLERANCE = 2e-3  # float32 Jacobians and a float32 factor on either side


@dataclass(frozen=True)
class Comparison:
    """The first method is the baseline."""

    name: str
    methods: tuple[MethodSpec, ...]


def compare(comparison: Comparison, batches: Sequence[int], repetitions: int, threads: int) -> dict[str, Any]:
    """Compare the answers, sweep the batch sizes, then time in turns; ratios are baseline / other."""
    swept = [sweep(method, batches, threads) for method in comparison.methods]
    difference = largest_difference([table.answer for table in swept])
    if not difference <= TOLERANCE:
        raise MeasurementError(
            f"{comparison.name}: found answers that differ by {difference:.1e} of the largest, "
            f"expected at most {TOLERANCE:.0e}; they do not compute the same thing"
        )
    sizes, tables = [table.best for table in swept], [table.seconds for table in swept]
    measured = take_turns(comparison.methods, sizes, repetitions, threads, tables)
    return {
        "name": comparison.name,
        "largest_difference": difference,
        "measurements": [m.as_json() for m in measured],
        "ratios": [ratios(measured[0], other) for other in measured[1:]],
    }


def largest_difference(found: Sequence[Sequence[float]]) -> float:
    """The largest difference from the first answer, relative to its largest value."""
    first = found[0]
    scale = max(abs(value) for value in first)
    if any(len(other) != len(first) for other in found) or not math.isfinite(scale) or scale == 0:
        return math.inf
    return max(abs(a - b) for other in found for a, b in zip(first, other, strict=True)) / scale


def ratios(baseline: Measurement, other: Measurement) -> dict[str, Any]:
    """How many times faster, round by round and by the medians, and how many times less memory."""
    return {
        "entrant": other.method,
        "faster": baseline.median / other.median,
        "faster_rounds": [a / b for a, b in zip(baseline.seconds, other.seconds, strict=True)],
        "less_memory": baseline.peak_bytes / max(1, other.peak_bytes),
    }
