"""One score made of several: the largest of how surprising each one is (`demur.service.maths.score_distribution`). Pure
NumPy, float64.

    t = max_j u_j(s_j), of those that are at least l_j

The largest lets either alone suffice: in a sum, scores that find nothing hide the one that does. `least`, l_j, is where
a score begins to count: one that tells far inputs, and near ones worse than the others do, counts only where it is
clear. Nothing here takes the scores to be independent: t is one fixed function of an input, so its conformal p-value
(`demur.service.maths.rejection`) is valid where other examples chose F_j.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from .score_distribution import ScoreDistribution
from .scores import Score

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Component:
    """One of the scores, its distribution, and the surprise from which on it counts."""

    score: Score
    distribution: ScoreDistribution
    least: float = 0.0


@dataclass(frozen=True)
class LargestSurprise:
    """The largest surprise, of a classification; at least one component, one of which counts from 0 on."""

    components: tuple[Component, ...]
    name: ClassVar[Literal["surprise"]] = "surprise"

    @functools.cached_property
    def _columns(self) -> tuple[Array, Array, Array, Array]:
        """Starts, scales and shapes of the tails, and the surprises from which on they count, (J, 1) each."""
        pairs = [(part.distribution, part.least) for part in self.components]
        starts, scales, shapes, least = np.array([(d.start, d.scale, d.shape, least) for d, least in pairs]).T[
            ..., None
        ]
        return starts, scales, shapes, least

    def scored(self, singles: Mapping[str, Array]) -> tuple[Array, Array]:
        """t (B,), and the place of the component that it is, (B,); singles: the scores (B,) of the components, by
        name."""
        starts, scales, shapes, least = self._columns
        scores = [part.score.scored(singles)[0] for part in self.components]
        pairs = zip(scores, self.components, strict=True)
        parts = np.array([part.distribution.inside(found) for found, part in pairs])
        # The tails of all components at once: for a few examples a call of NumPy costs more than what it computes.
        excess = np.maximum(np.array(scores) - starts, 0.0) / scales
        curved = np.log1p(shapes * excess) / np.where(shapes > 0, shapes, 1.0)
        parts += np.where(shapes > 0, curved, excess)
        parts = np.where(parts < least, 0.0, parts)  # a NaN stays one
        return parts.max(axis=0), parts.argmax(axis=0)
