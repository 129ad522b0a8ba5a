"""One score made of several, by how surprising each one is (`demur.service.maths.score_distribution`). Pure NumPy,
float64.

    fused:     t = sum_j w_j u_j(s_j),   w_j > 0, sum_j w_j = 1
    surprise:  t = max_j u_j(s_j), of those that are at least l_j

With equal weights and independent scores, the sum is Fisher's statistic (1925); it tells what several scores see a
little of. The largest lets either alone suffice: in a sum, scores that find nothing hide the one that does. `least`,
l_j, is where a score begins to count: one that tells far inputs, and near ones worse than the others do, counts only
where it is clear. Nothing here takes the scores to be independent: t is one fixed function of an input, so its
conformal p-value (`demur.service.maths.rejection`) is valid where other examples chose F_j and w_j.
"""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from .score_distribution import ScoreDistribution
from .score_outputs import ClassOutputs, Outputs
from .scores import SCORES, Score

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Component:
    """One of the scores, its weight in (0, 1], its distribution, and the surprise from which on it counts."""

    score: Score
    weight: float
    distribution: ScoreDistribution
    least: float = 0.0


@dataclass(frozen=True)
class Surprises:
    """u_j of several scores of a classification."""

    components: tuple[Component, ...]

    @functools.cached_property
    def _columns(self) -> tuple[Array, Array, Array]:
        """Starts, scales and shapes of the tails, (J, 1) each."""
        parts = [
            (part.distribution.start, part.distribution.scale, part.distribution.shape) for part in self.components
        ]
        starts, scales, shapes = np.array(parts).T[:, :, np.newaxis]
        return starts, scales, shapes

    def of(self, outputs: Outputs) -> Array:
        """(J, B)."""
        starts, scales, shapes = self._columns
        scores = [part.score.function(outputs) for part in self.components]
        pairs = zip(scores, self.components, strict=True)
        parts = np.array([part.distribution.inside(found) for found, part in pairs])
        # The tails of all components at once: for a few examples a call of NumPy costs more than what it computes.
        excess = np.maximum(np.array(scores) - starts, 0.0) / scales
        curved = np.log1p(shapes * excess) / np.where(shapes > 0, shapes, 1.0)
        parts += np.where(shapes > 0, curved, excess)
        return parts


@dataclass(frozen=True)
class FusedScore:
    """The weighted sum, of a classification; at least one component."""

    components: tuple[Component, ...]
    name: ClassVar[Literal["fused"]] = "fused"

    @functools.cached_property
    def _parts(self) -> tuple[Surprises, Array]:
        return Surprises(self.components), np.array([[part.weight] for part in self.components])

    def scored(self, outputs: Outputs) -> tuple[Array, Array]:
        """t (B,), and the place of the component with the largest part of it, (B,)."""
        surprises, weights = self._parts
        parts = surprises.of(outputs) * weights
        return parts.sum(axis=0), parts.argmax(axis=0)


@dataclass(frozen=True)
class LargestSurprise:
    """The largest surprise, of a classification; at least one component, one of which counts from 0 on."""

    components: tuple[Component, ...]
    name: ClassVar[Literal["surprise"]] = "surprise"

    @functools.cached_property
    def _parts(self) -> tuple[Surprises, Array]:
        return Surprises(self.components), np.array([[part.least] for part in self.components])

    def scored(self, outputs: Outputs) -> tuple[Array, Array]:
        """t (B,), and the place of the component that it is, (B,)."""
        surprises, least = self._parts
        parts = surprises.of(outputs)
        parts = np.where(parts < least, 0.0, parts)  # a NaN stays one
        return parts.max(axis=0), parts.argmax(axis=0)


JoinedScore = FusedScore | LargestSurprise
"""A score made of several."""


def surprises(outputs: ClassOutputs, distributions: dict[str, ScoreDistribution]) -> Array:
    """u_j of the scores that have a distribution, (B, J)."""
    scores = ((SCORES[name].scored(outputs)[0], known) for name, known in distributions.items())
    return np.stack([known.surprise_at(values) for values, known in scores], axis=1)
