"""A test, while labels come, of whether predictions are still as accurate as expected. Pure Python.

The hypothesis is that each labelled prediction is wrong with a probability of at most e = 1 - accuracy, whatever came
before. Bet j against it takes the odds to be r_j times as bad: an error e_t in [0, 1] multiplies its capital by

    (1 + (r_j - 1) e_t) / (1 + (r_j - 1) e),

whose mean is at most 1 under the hypothesis (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", JRSS B 2024). For e_t in {0, 1} it is the likelihood ratio of two coins.
"""

import math
from collections.abc import Iterable

from probity.service.maths.betting import Gambler

ODDS_RATIOS = (1.5, 2.0, 4.0, 8.0)  # r: from somewhat worse than expected to far worse
LEVEL = 100.0  # capital that is ever reached without cause with a probability of 1 %
LEAST_ERROR, MOST_ERROR = 1e-6, 1 - 1e-6  # keeps bets against an accuracy of 1 finite
# Above it, wins are given away: the capital stays finite, and falls again once answers are right. Even one process of a
# hundred can have so much that the mean of all is an alarm.
ENOUGH = 1e4


class AccuracyTest:
    """The gambler who bets against an accuracy.

    Several who bet on different labels have, on average, a fair game's capital too: the mean of their capitals reaches
    `LEVEL` without cause with a probability of 1 % at most (Vovk and Wang, "E-values: Calibration, combination and
    applications", Annals of Statistics 2021). That does not hold for the largest of them.
    """

    def __init__(self, accuracy: float) -> None:
        self._expected = min(max(1 - accuracy, LEAST_ERROR), MOST_ERROR)
        self._gambler = Gambler(len(ODDS_RATIOS))

    @property
    def capital(self) -> float:
        """Of 1 at the start; `LEVEL` is an alarm."""
        return self._gambler.capital

    def observe(self, errors: Iterable[float]) -> None:
        """Bet on `errors` in [0, 1], in their order."""
        for error in errors:
            most = math.inf if self.capital < ENOUGH else 1.0
            factors = [(1 + (r - 1) * error) / (1 + (r - 1) * self._expected) for r in ODDS_RATIOS]
            self._gambler.bet([min(factor, most) for factor in factors])
