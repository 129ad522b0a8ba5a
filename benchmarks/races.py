"""A race: each entrant at its best batch size, taking turns; the same answer is asked of all of them first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Entrant, Measurement, MeasurementError, sweep, take_turns

TOLERANCE = 2e-3  # float32 Jacobians and a float32 factor on either side


@dataclass(frozen=True)
class Race:
    """The first entrant is the peer, whom the others are compared with."""

    name: str
    entrants: tuple[Entrant, ...]


def run_race(race: Race, batches: Sequence[int], repetitions: int, threads: int) -> dict[str, Any]:
    """Answers compared, batch sizes swept, then turns; times and memory as ratios peer / other."""
    swept = [sweep(entrant, batches, threads) for entrant in race.entrants]
    difference = largest_difference([table.answer for table in swept])
    if not difference <= TOLERANCE:
        raise MeasurementError(
            f"{race.name}: found answers that differ by {difference:.1e} of the largest, expected {TOLERANCE:.0e} at "
            "most; they do not compute the same thing"
        )
    sizes, tables = [table.best for table in swept], [table.seconds for table in swept]
    measured = take_turns(race.entrants, sizes, repetitions, threads, tables)
    return {
        "name": race.name,
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


def ratios(peer: Measurement, other: Measurement) -> dict[str, Any]:
    """How many times faster, round by round and by the medians, and how many times less memory."""
    return {
        "entrant": other.entrant,
        "faster": peer.median / other.median,
        "faster_rounds": [a / b for a, b in zip(peer.seconds, other.seconds, strict=True)],
        "less_memory": peer.peak_bytes / max(1, other.peak_bytes),
    }
