"""Histogram buckets of one model, from the reference quantiles of its bundle.

A histogram's quantiles are as sharp as its buckets are narrow where the values lie, and that differs from model to
model: the calibration data show where. Bundles are untrusted: whatever their quantiles, the buckets are few, finite and
ascending.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Buckets = tuple[float, ...]

# Steps of 2 to 2.5 over eight decades: for a quantity of unknown size.
UNKNOWN_SIZE: Buckets = tuple(float(f"{digit}e{exponent}") for exponent in range(-4, 4) for digit in (1, 2, 5))
UNIT: Buckets = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
P_VALUES: Buckets = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
CORE = 16  # boundaries in equal ratios, from the lowest reference quantile to `REACH` times the highest
REACH = 8.0
BELOW, ABOVE = (0.05, 0.2, 0.5), (3.0, 10.0, 100.0, 1e3, 1e4)
FURTHER = (10.0, 100.0, 1e3, 1e4)
WIDEST = 1e6  # ratio of the highest quantile to the lowest that is still resolved
LARGEST, SMALLEST = 1e25, 1e-25
DIGITS = 4


def around(reference: Array | None, largest: float = math.inf) -> Buckets:
    """Buckets of a quantity from 0 to `largest`: a boundary at every reference quantile, steps of equal ratio between
    them and up to `REACH` times the highest, and a few wide buckets on either side.

    Without usable quantiles: `UNKNOWN_SIZE`, or tenths of `largest`.
    """
    positive = sorted({_rounded(value) for value in _listed(reference) if SMALLEST <= value <= min(largest, LARGEST)})
    if not positive:
        return UNKNOWN_SIZE if largest == math.inf else (*(_rounded(largest * share) for share in UNIT[:-1]), largest)
    low, high = max(positive[0], positive[-1] / WIDEST), positive[-1]
    core = np.geomspace(low, max(low, min(REACH * high, largest)), CORE)
    half_step = math.sqrt(core[1] / core[0])
    between = [x for x in core.tolist() if all(not y / half_step < x < y * half_step for y in positive)]
    outside = [low * share for share in BELOW] + [REACH * high * factor for factor in ABOVE]
    inner = {*positive, *map(_rounded, between), *map(_rounded, outside)}
    limit = [] if largest == math.inf else [largest]
    return (*sorted(x for x in inner if x < largest), *limit)


def around_any(reference: Array | None, largest: float = math.inf) -> Buckets:
    """Buckets of a quantity that may be negative: those `around` it, or, with a quantile below 0, even steps over the
    range of the quantiles and as far beyond it on either side, and wide ones further out."""
    values = sorted({_rounded(value) for value in _listed(reference) if abs(value) <= LARGEST})
    if not values or values[0] >= 0:
        return around(reference, largest)
    low, width = values[0], max(values[-1] - values[0], abs(values[0]) / WIDEST, SMALLEST)
    even = np.linspace(low - width, low + 2 * width, CORE).tolist()
    outside = [low + side * factor * width for side in (-1, 1) for factor in FURTHER]
    return (*sorted({_rounded(value) for value in (*values, *even, *outside)}),)


def around_complement(reference: Array | None, smallest: float) -> Buckets:
    """Buckets of a probability from `smallest` to 1, sharp next to 1: those `around` 1 minus its quantiles."""
    complement = None if reference is None else 1.0 - reference
    if not any(SMALLEST <= value <= 1.0 - smallest for value in _listed(complement)):
        return UNIT
    return (*sorted({round(1.0 - x, 12) for x in around(complement, 1.0 - smallest)}), 1.0)


def p_values(examples: int, false_reject_rate: float) -> Buckets:
    """Buckets of a conformal p-value, which is uniform in distribution and at least 1 / (examples + 1)."""
    least = 1.0 / (examples + 1)
    return (*sorted({least, *(p for p in (*P_VALUES[:-1], false_reject_rate) if p > least)}), 1.0)


def _listed(reference: Array | None) -> list[float]:
    return [] if reference is None else [float(value) for value in reference]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
