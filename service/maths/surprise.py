"""One score made of several: the largest of how surprising each one is (`demur.service.maths.score_distribution`). Pure
NumPy, float64.

    t = max_j u_j(s_j), of those that are at least l_j; of a score with an end e, u_j(s_j / (e - s_j))

The largest lets either alone suffice: in a sum, scores that find nothing hide the one that does. `least`, l_j, is where
a score begins to count: one that tells far inputs, and near ones worse than the others do, counts only where it is
clear. `end`, e_j, is what far inputs come near to: as odds, they are beyond all others however near to it some are.
Nothing here takes the scores to be independent: t is one fixed function of an input, so its conformal p-value
(`demur.service.maths.rejection`) is valid where other examples chose F_j.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from .score_distribution import ScoreDistribution
from .scores import Score

Array = npt.NDArray[Any]
ROUNDING = 1e-6  # of a surprise, far above that of float64
LEAST_ROOM = 0.01  # of an end, below which odds grow as their score does


@dataclass(frozen=True)
class Component:
    """One of the scores, its distribution, the surprise from which on it counts, and its end, None for none."""

    score: Score
    distribution: ScoreDistribution
    least: float = 0.0
    end: float | None = None

    def surprise_at(self, scores: Array) -> Array:
        """u (B,) of scores (B,)."""
        return self.distribution.surprise_at(as_odds(scores, self.end))

    @property
    def nothing(self) -> float:
        """A score that does not count, nor does a smaller one; minus infinity where that is not known."""
        known, surprise = self.distribution, self.least - ROUNDING
        if surprise < known.surprise[0]:
            return -np.inf
        odds = known.value_at(surprise)
        return odds if self.end is None else odds * max(self.end / (1 + odds), LEAST_ROOM * self.end)


def as_odds(scores: Array, end: float | None) -> Array:
    """s / (e - s), and 100 s / e where the room e - s is less than a hundredth of e; the scores without an end."""
    return scores if end is None else scores / np.maximum(end - scores, LEAST_ROOM * end)


@dataclass(frozen=True)
class LargestSurprise:
    """The largest surprise, of a classification; at least one component, one of which counts from 0 on."""

    components: tuple[Component, ...]
    name: ClassVar[Literal["surprise"]] = "surprise"

    def scored(self, singles: Mapping[str, Array]) -> tuple[Array, Array]:
        """t (B,), and the place of the component that it is, (B,); singles: the scores (B,) of the components, by
        name."""
        scores = np.array([singles[part.score.name] for part in self.components], np.float64)
        # Most count nowhere; for a few examples a call of NumPy costs more than its work.
        counting = (~(scores <= self._nothing)).any(axis=1)
        parts = np.zeros(scores.shape)
        for place in np.flatnonzero(counting):
            found = self.components[place].surprise_at(scores[place])
            parts[place] = np.where(found < self.components[place].least, 0.0, found)  # a NaN stays one
        return parts.max(axis=0), parts.argmax(axis=0)

    @cached_property
    def _nothing(self) -> Array:
        return np.array([[part.nothing] for part in self.components])
