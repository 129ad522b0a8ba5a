"""The capital of a gambler who bets against a hypothesis, one observation after the other. Pure Python.

While the hypothesis holds no bet wins on average, so that by Ville's inequality the capital, 1 at the start, ever
reaches 1 / alpha with probability alpha at most, however long the game lasts (Shafer and Vovk, "Game-Theoretic
Foundations for Probability and Finance", 2019).
"""

from collections.abc import Sequence

JUMP = 0.001  # the share of the capital that is distributed anew among the bets at every step


class Gambler:
    """Several bets at once.

    Each bet multiplies its capital by a factor whose mean is 1 at most while the hypothesis holds, and `JUMP` of all
    capital is distributed anew at every step, so that the bets that win now have something to win with (Vovk et al.,
    "Retrain or not retrain", COPA 2021).

    The capital that has not been in use since the start comes into play little by little, 1 / (k (k + 1)) of it at step
    k: else a long time without change would leave nothing to bet with on the day of a change.
    """

    def __init__(self, bets: int) -> None:
        self._steps, self._bets = 0, [0.0] * bets

    @property
    def capital(self) -> float:
        """What the gambler has, of 1 at the start."""
        return sum(self._bets) + 1 / (self._steps + 1)

    def bet(self, factors: Sequence[float]) -> float:
        """The capital after one more observation, which multiplies what is in each bet by its factor."""
        self._steps += 1
        fresh = 1 / (self._steps * (self._steps + 1))
        share = (JUMP * sum(self._bets) + fresh) / len(self._bets)
        self._bets = [((1 - JUMP) * bet + share) * factor for bet, factor in zip(self._bets, factors, strict=True)]
        return self.capital
