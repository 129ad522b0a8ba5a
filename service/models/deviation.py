"""How far a quantity is from its median on the calibration data: one scale, and one set of buckets, for every model."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LARGEST = 1e300  # of a spread: keeps 0 times it finite
LEAST_SPREAD = 1e-6  # of the median's size: smaller differences come from rounding


@dataclass(frozen=True)
class Deviation:
    """d(x) = (x - m) / u for x >= m, and (x - m) / l below.

    m is the median of the calibration data, u the distance from it to the upper quartile, l to the lower one. So -1, 0
    and 1 are the quartiles, whatever the unit and the sign of x; and d ascends with x, so that it keeps quantiles.
    Where a quartile is the median, the 5 or 95 % quantile takes its place, and m - 1 or m + 1 where that is the median,
    too. u and l are at least `LEAST_SPREAD` |m|.
    """

    median: float
    lower: float
    upper: float

    @classmethod
    def from_quantiles(cls, quantiles: Array) -> "Deviation":
        """Those of a bundle, at `REFERENCE_LEVELS` (5,); it is untrusted, so that they may be in any order."""
        lowest, low, median, high, highest = np.sort(quantiles).tolist()
        least = LEAST_SPREAD * abs(median)
        upper, lower = high - median or highest - median or 1.0, median - low or median - lowest or 1.0
        return cls(median, min(max(lower, least), LARGEST), min(max(upper, least), LARGEST))

    def values_at(self, deviations: Iterable[float]) -> list[float]:
        """The values x with these deviations; infinite beyond the largest float."""
        return [self.median + d * (self.upper if d >= 0 else self.lower) for d in deviations]
