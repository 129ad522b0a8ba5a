"""A test, while labels come, of whether predictions are still as accurate as expected. Pure Python.

The hypothesis is that each labelled prediction is wrong with a probability of at most e = 1 - accuracy, whatever came
before. A test martingale (`demur.service.maths.martingale`) is the evidence against it. Component j takes the odds to
be r_j times as bad: an error e_t in [0, 1] multiplies it by

    (1 + (r_j - 1) e_t) / (1 + (r_j - 1) e),

whose mean is at most 1 under the hypothesis (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", JRSS B 2024). For e_t in {0, 1} it is the likelihood ratio of two coins.
"""

import math
from collections.abc import Iterable

from .martingale import Martingale

ODDS_RATIOS = (1.5, 2.0, 4.0, 8.0)  # r: from somewhat worse than expected to far worse
LEVEL = 100.0  # reached without cause with a probability of 1 % at most
LEAST_ERROR, MOST_ERROR = 1e-6, 1 - 1e-6  # keeps evidence against an accuracy of 1 finite
# Above it, no factor above 1 is taken: the value stays finite, and falls again once answers are right. Even one process
# of a hundred can have so much that the mean of all is an alarm.
ENOUGH = 1e4


class AccuracyTest:
    """The test martingale against an accuracy.

    The mean of several, over different labels, is a test martingale too: it reaches `LEVEL` without cause with a
    probability of 1 % at most (Vovk and Wang, "E-values: Calibration, combination and applications", Annals of
    Statistics 2021). That does not hold for the largest of them.
    """

    def __init__(self, accuracy: float) -> None:
        self._expected = min(max(1 - accuracy, LEAST_ERROR), MOST_ERROR)
        self._martingale = Martingale(len(ODDS_RATIOS))

    @property
    def value(self) -> float:
        """1 at the start; `LEVEL` is an alarm."""
        return self._martingale.value

    def observe(self, errors: Iterable[float]) -> None:
        """Take `errors` in [0, 1], in their order."""
        for error in errors:
            most = math.inf if self.value < ENOUGH else 1.0
            factors = [(1 + (r - 1) * error) / (1 + (r - 1) * self._expected) for r in ODDS_RATIOS]
            self._martingale.multiply([min(factor, most) for factor in factors])
