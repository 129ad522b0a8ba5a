"""A test martingale: evidence against a hypothesis, one observation after the other. Pure Python.

It is 1 at the start, and its mean does not grow while the hypothesis holds, so that by Ville's inequality it ever
reaches 1 / alpha with probability alpha at most, however long the test runs (Shafer and Vovk, "Game-Theoretic
Foundations for Probability and Finance", 2019; docs/guarantees.md explains it).
"""

from collections.abc import Sequence

JUMP = 0.001  # the share of the value that is distributed anew among the components at every step


class Martingale:
    """A sum of components, which are sensitive to different alternatives.

    Each observation multiplies each component by a factor whose mean is 1 at most while the hypothesis holds, and
    `JUMP` of the sum is distributed anew at every step, so that those which grow now have something to grow from (Vovk
    et al., "Retrain or not retrain", COPA 2021).

    The part that has not been in use since the start comes into play little by little, 1 / (k (k + 1)) of it at step
    k: else a long time without change would leave nothing to grow from on the day of a change.
    """

    def __init__(self, components: int) -> None:
        self._steps, self._components = 0, [0.0] * components

    @property
    def value(self) -> float:
        """1 at the start."""
        return sum(self._components) + 1 / (self._steps + 1)

    def multiply(self, factors: Sequence[float]) -> float:
        """The value after one more observation, which multiplies each component by its factor."""
        self._steps += 1
        fresh = 1 / (self._steps * (self._steps + 1))
        share = (JUMP * sum(self._components) + fresh) / len(self._components)
        self._components = [
            ((1 - JUMP) * one + share) * factor for one, factor in zip(self._components, factors, strict=True)
        ]
        return self.value
