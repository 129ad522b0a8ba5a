"""The score of a cascade: a cheap first stage decides where its verdict is certain, the full stage everywhere else.

With the scores s_1 and s_2 of the two stages, a band [low, high] of s_1 and a threshold t of s_2,

    s(x) = t s_1(x) / low     where s_1(x) < low:   accepted, s <= t
         = t s_1(x) / high    where s_1(x) > high:  rejected, s > t
         = s_2(x)             in between.

s is one fixed function of the input: the p-values of `service.maths.rejection` are valid for it where low, high and t
were chosen without the calibration examples. Scaling s_1 keeps its order, and needs no common unit of the two scores.
Pure NumPy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Band:
    """0 <= low <= high, high > 0; infinite where the first stage never rejects. threshold: t > 0, finite."""

    low: float
    high: float
    threshold: float

    def decided(self, first: Array) -> Array:
        """Whether the first stage decides, (B,) -> (B,) bool; a score that is not finite never does."""
        first = np.asarray(first)
        found: Array = ((first < self.low) | (first > self.high)) & np.isfinite(first)
        return found

    def rejects(self, first: Array) -> Array:
        """The verdict of the first stage where it decides, (B,) -> (B,) bool."""
        found: Array = np.asarray(first) > self.high
        return found

    def placed(self, first: Array) -> Array:
        """s of examples that the first stage decides, (n,) -> (n,); nothing of use for others."""
        first = np.asarray(first, np.float64)
        with np.errstate(invalid="ignore"):  # infinity by infinity, where nothing is decided
            found: Array = self.threshold * (first / np.where(first < self.low, self.low, self.high))
        return found
