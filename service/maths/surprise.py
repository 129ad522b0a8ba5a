"""One score made of several: the largest of how surprising each one is (`demur.service.maths.score_distribution`). Pure
NumPy, float64.

    t = max_j u_j(s_j), of those that are at least l_j

The largest lets either alone suffice: in a sum, scores that find nothing hide the one that does. `least`, l_j, is where
a score begins to count: one that tells far inputs, and near ones worse than the others do, counts only where it is
clear. Nothing here takes the scores to be independent: t is one fixed function of an input, so its conformal p-value
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


@dataclass(frozen=True)
class Component:
    """One of the scores, its distribution, and the surprise from which on it counts."""

    score: Score
    distribution: ScoreDistribution
    least: float = 0.0

    def surprise(self, singles: Mapping[str, Array]) -> Array:
        """u (B,), 0 where it does not count; a NaN stays one."""
        scores = self.score.scored(singles)[0]
        if self.least <= 0:
            return self.distribution.surprise_at(scores)
        if (scores <= self._nothing).all():  # as most are; for a few examples a call of NumPy costs more than its work
            return np.zeros(len(scores))
        found = self.distribution.surprise_at(scores)
        return np.where(found < self.least, 0.0, found)

    @cached_property
    def _nothing(self) -> np.float64:
        """A score that does not count, nor does a smaller one; minus infinity where that is not known."""
        known, surprise = self.distribution, self.least - ROUNDING
        return np.float64(known.value_at(surprise) if surprise >= known.surprise[0] else -np.inf)


@dataclass(frozen=True)
class LargestSurprise:
    """The largest surprise, of a classification; at least one component, one of which counts from 0 on."""

    components: tuple[Component, ...]
    name: ClassVar[Literal["surprise"]] = "surprise"

    def scored(self, singles: Mapping[str, Array]) -> tuple[Array, Array]:
        """t (B,), and the place of the component that it is, (B,); singles: the scores (B,) of the components, by
        name."""
        parts = np.array([part.surprise(singles) for part in self.components])
        return parts.max(axis=0), parts.argmax(axis=0)
