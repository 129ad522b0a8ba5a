"""A test, while labels come, of whether predictions are still as accurate as expected. Pure Python.

The hypothesis is that each labelled prediction is wrong with a probability of at most e = 1 - accuracy, whatever came
before. Bet j against it takes the odds to be r_j times as bad: an error e_t in [0, 1] multiplies its capital by

    (1 + (r_j - 1) e_t) / (1 + (r_j - 1) e),

whose mean is at most 1 under the hypothesis (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", JRSS B 2024). For e_t in {0, 1} it is the likelihood ratio of two coins.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from probity.service.maths.betting import Gambler

ODDS_RATIOS = (1.5, 2.0, 4.0, 8.0)  # r: from somewhat worse than expected to far worse
LEVEL = 100.0  # an alarm without cause has a probability of 1 %
LEAST_ERROR, MOST_ERROR = 1e-6, 1 - 1e-6  # keeps bets against an accuracy of 1 finite


def fresh_gambler() -> Gambler:
    """A gambler who has not bet yet."""
    return Gambler(len(ODDS_RATIOS))


@dataclass(frozen=True)
class AccuracyEvidence:
    """The gambler after some observations, and how often the capital reached `LEVEL` among them."""

    gambler: Gambler
    alarms: int

    @property
    def log10_capital(self) -> float:
        """log10 of the capital: 2 is an alarm."""
        return math.log10(self.gambler.capital)


def bet_on_errors(gambler: Gambler, errors: Iterable[float], accuracy: float) -> AccuracyEvidence:
    """Bet on `errors` in [0, 1], in their order; after each alarm the test begins again. `gambler` changes."""
    expected, alarms = min(max(1 - accuracy, LEAST_ERROR), MOST_ERROR), 0
    for error in errors:
        if gambler.bet([(1 + (r - 1) * error) / (1 + (r - 1) * expected) for r in ODDS_RATIOS]) >= LEVEL:
            alarms += 1
            gambler = fresh_gambler()
    return AccuracyEvidence(gambler, alarms)
