"""A test, while requests come, of whether their scores are exchangeable with the calibration scores.

The evidence of drift is half the larger of two test martingales (`demur.service.maths.martingale`). One is of conformal
p-values, which are independent and uniform as long as scores are exchangeable (Vovk, Nouretdinov and Gammerman,
"Testing exchangeability on-line", ICML 2003), the other of how many scores lie above the largest of the calibration
data. Each is one by what it looks at alone, not by what both do, so that their mean need be none.
"""

import bisect
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .martingale import Martingale
from .rejection import share_bound

Array = npt.NDArray[Any]
EXPONENTS = (0.8, 0.95)  # the smaller, the more counts a single tiny p-value, and the more is lost without any
LEAST_P = 1e-9
MOST_SCORES, RECENT = 100_000, 1000
RANKS, MOST_SHARE = (1, 3, 10, 30, 100, 300, 1000, 3000), 0.2  # of calibration scores, from the largest on
STAKES = (0.003, 0.03, 0.2)  # the part of a component that is multiplied: best is the share of foreign inputs
SPENT = 0.1  # of the allowed false alarms, on calibration data that show too little


class SmoothedPValues:
    """p = (#{s_i > s} + u #{s_i = s}) / n over the calibration scores, all scores since, and s itself; u uniform.

    With each score added to those that the next ones are compared with, p-values of exchangeable scores are independent
    and uniform; against the calibration scores alone they would not be. From `MOST_SCORES` on none is added, which
    changes nothing that so many observations could show, and bounds the memory.
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
    """The factor of each component: functions whose mean over uniform p is 1.

    3/2 - p, which grows with small p-values; 1; 1/2 + p, with large ones (Vovk et al., "Retrain or not retrain", COPA
    2021); and e p^(e - 1) for each of `EXPONENTS`, which grows with few tiny ones, as a few foreign inputs among many
    give them.
    """
    tiny = max(p_value, LEAST_P)
    return (1.5 - p_value, 1.0, 0.5 + p_value, *(e * tiny ** (e - 1) for e in EXPONENTS))


class TailOdds:
    """The factors for the share of scores above the k-th largest calibration score s_(k), for each of `RANKS`.

    Over calibration sets of n, that share is Beta(k, n + 1 - k) distributed while scores are exchangeable (Vovk,
    "Conditional validity of inductive conformal predictors", 2012): with a probability of 1 - `risk` it is at most q_k
    for all k. Then 1 - b + b 1{s > s_(k)} / q_k has a mean of at most 1, for each b of `STAKES`. The p-values of
    `SmoothedPValues` come to take a small steady share of foreign inputs for ordinary; these factors do not.
    """

    def __init__(self, calibration: Array, risk: float) -> None:
        ascending = np.sort(np.asarray(calibration, np.float64))
        n = len(ascending)
        ranks = [k for k in RANKS if k <= MOST_SHARE * n]
        shares = [share_bound(n, k, 1 - risk / len(ranks)) for k in ranks]
        self.bounds = {float(ascending[n - k]): share for k, share in zip(ranks, shares, strict=True)}
        self._limits = sorted(self.bounds)
        self._factors = [self._above(self._limits[:count]) for count in range(len(self._limits) + 1)]

    def _above(self, passed: list[float]) -> tuple[float, ...]:
        """The factors for a score above these limits."""
        return tuple(
            1 - stake + (stake / self.bounds[limit] if limit in passed else 0.0)
            for limit in self._limits
            for stake in STAKES
        )

    def __len__(self) -> int:
        """How many components there are."""
        return len(self._factors[0])

    def of(self, score: float) -> tuple[float, ...]:
        """The factor of each component."""
        return self._factors[bisect.bisect_left(self._limits, score)]


class DriftTest:
    """Observe scores; each time the evidence has grown `level` times, that is an alarm, and the test begins again.

    While scores are exchangeable with `calibration`, a test gives an alarm with probability 1 / `level` at most,
    however long it runs: `SPENT` of it for calibration data that `TailOdds` are wrong about, the rest by Ville's
    inequality.
    """

    def __init__(self, calibration: Array, level: float, generator: np.random.Generator | None = None) -> None:
        self.level, self._calibration = level, np.sort(np.asarray(calibration, np.float64))
        known = np.append(self._calibration, np.inf)
        self._repeated = np.where(np.append(known[1:] == known[:-1], False), known, np.nan)
        self._generator = np.random.default_rng() if generator is None else generator
        self._tail = TailOdds(calibration, SPENT / level)
        self._martingales = 2 if len(self._tail) else 1
        self._begin()

    @property
    def evidence(self) -> float:
        """log10 of half the larger martingale, at least `log10(level)` at an alarm; both are 1 at the start."""
        return math.log10(max(1e-300, self._value))

    def observe(self, scores: Array) -> int:
        """Take finite scores (B,), in their order; the number of alarms.

        A calibration score is kept a little larger than a service computes it. So one below several that are equal, as
        of inputs that repeat, counts as theirs.
        """
        repeated = self._repeated[self._calibration.searchsorted(scores)]
        known = np.where(np.isnan(repeated), np.asarray(scores, np.float64), repeated)
        alarms, values = 0, known.tolist()
        for score, p_value in zip(values, self._p_values.next(known), strict=True):
            larger = self._of_p_values.multiply(odds(p_value))
            if len(self._tail):
                larger = max(larger, self._of_tail.multiply(self._tail.of(score)))
            self._value = larger / self._martingales
            if (1 - SPENT) * self._value >= self.level:
                alarms += 1
                self._begin_martingales()
        if alarms:
            self._begin()
        return alarms

    def _begin(self) -> None:
        self._p_values = SmoothedPValues(self._calibration, self._generator)
        self._begin_martingales()

    def _begin_martingales(self) -> None:
        self._of_p_values, self._of_tail = Martingale(len(odds(0.5))), Martingale(len(self._tail))
        self._value = 1 / self._martingales
