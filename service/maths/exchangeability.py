"""A test, while requests come, of whether their scores are exchangeable with the calibration scores.

A gambler (`probity.service.maths.betting`) bets against it on conformal p-values, which are independent and uniform as
long as scores are exchangeable (Vovk, Nouretdinov and Gammerman, "Testing exchangeability on-line", ICML 2003).
"""

import bisect
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from probity.service.maths.betting import Gambler

Array = npt.NDArray[Any]
EXPONENTS = (0.8, 0.95)  # the smaller, the more is won from single tiny p-values, and lost while there are none
LEAST_P = 1e-9
MOST_SCORES, RECENT = 100_000, 1000


class SmoothedPValues:
    """p = (#{s_i > s} + u #{s_i = s}) / n over the calibration scores, all scores since, and s itself; u uniform.

    With each score added to those that the next ones are compared with, p-values of exchangeable scores are independent
    and uniform; against the calibration scores alone they would not be. From `MOST_SCORES` on none is added, which
    changes nothing that so many bets could win from, and bounds the memory.
    """

    def __init__(self, calibration: Array, generator: np.random.Generator) -> None:
        self._sorted, self._recent = np.sort(np.asarray(calibration, np.float64)), list[float]()
        self._generator = generator

    def __len__(self) -> int:
        """How many scores the next one is compared with."""
        return len(self._sorted) + len(self._recent)

    def next(self, scores: Array) -> list[float]:
        """The p-values of the scores (B,), one after the other."""
        values = np.asarray(scores, np.float64)
        not_above = self._sorted.searchsorted(values, "right").tolist()
        below = self._sorted.searchsorted(values, "left").tolist()
        ties, old = self._generator.random(len(values)).tolist(), len(self._sorted)
        found = []
        for score, right, left, tie in zip(values.tolist(), not_above, below, ties, strict=True):
            recent, count = self._recent, old + len(self._recent)
            recent_right = bisect.bisect_right(recent, score)
            recent_left = bisect.bisect_left(recent, score, hi=recent_right)
            above = count - right - recent_right
            equal = 1 + (right - left) + (recent_right - recent_left)
            found.append((above + tie * equal) / (count + 1))
            if count < MOST_SCORES:
                recent.insert(recent_right, score)
        if len(self._recent) >= RECENT:
            self._sorted = np.sort(np.concatenate([self._sorted, self._recent]), kind="stable")
            self._recent = []
        return found


def odds(p_value: float) -> tuple[float, ...]:
    """What each bet multiplies its capital by: functions whose mean over uniform p is 1.

    3/2 - p, which wins from small p-values; 1; 1/2 + p, from large ones (Vovk et al., "Retrain or not retrain", COPA
    2021); and e p^(e - 1) for each of `EXPONENTS`, which wins from few tiny ones, as a few foreign inputs among many
    give them.
    """
    tiny = max(p_value, LEAST_P)
    return (1.5 - p_value, 1.0, 0.5 + p_value, *(e * tiny ** (e - 1) for e in EXPONENTS))


class DriftTest:
    """Observe scores; each time the capital reaches `level`, that is an alarm, and the test begins again.

    While scores are exchangeable with `calibration`, a test gives an alarm with probability 1 / `level` at most,
    however long it runs.
    """

    def __init__(self, calibration: Array, level: float, generator: np.random.Generator | None = None) -> None:
        self.level, self._calibration = level, calibration
        self._generator = np.random.default_rng() if generator is None else generator
        self._p_values, self._gambler = self._fresh()

    @property
    def evidence(self) -> float:
        """log10 of the capital."""
        return math.log10(self._gambler.capital)

    def observe(self, scores: Array) -> int:
        """Take finite scores (B,), in their order; the number of alarms."""
        alarms = 0
        for p_value in self._p_values.next(scores):
            if self._gambler.bet(odds(p_value)) >= self.level:
                alarms += 1
                self._gambler = _fresh_gambler()
        if alarms:
            self._p_values, self._gambler = self._fresh()
        return alarms

    def _fresh(self) -> tuple[SmoothedPValues, Gambler]:
        return SmoothedPValues(self._calibration, self._generator), _fresh_gambler()


def _fresh_gambler() -> Gambler:
    return Gambler(len(odds(0.5)))
