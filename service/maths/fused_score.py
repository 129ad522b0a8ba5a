"""One score made of several: how surprising each one is, weighted and added up. Pure NumPy, float64.

    t = sum_j w_j u_j(s_j),   u_j(s) = -log(1 - F_j(s)),   w_j > 0, sum_j w_j = 1

F_j is the distribution of score j on held-out data: the empirical one up to its 0.9 quantile a, known at no more than
200 levels, and 1 - F_j(s) = 0.1 exp(-(s - a) / m) above it, with m the mean excess over a. So t stays finite and
continuous, and grows beyond the largest score seen: log(10) + (s - a) / m. With equal weights and independent scores,
t is Fisher's statistic (1925). Nothing here takes the scores to be independent: t is one fixed function of an input, so
its conformal p-value (`service.maths.rejection`) is valid where other examples chose F_j and w_j.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from service.maths.score_outputs import ClassOutputs, Outputs
from service.maths.scores import FEATURE_SCORES, SCORES, Score, Scoring

Array = npt.NDArray[Any]
MOST_LEVELS = 200
TAIL_LEVEL = 0.9
TAIL_SURPRISE = -math.log1p(-TAIL_LEVEL)


@dataclass(frozen=True)
class ScoreDistribution:
    """u of one score. values (m,) strictly ascending, the last one is a; surprise (m,) = u there, ascending, the last
    one log(10); mean_excess m > 0."""

    values: Array
    surprise: Array
    mean_excess: float

    @classmethod
    def of(cls, scores: Array) -> "ScoreDistribution | None":
        """The distribution of `scores` (n,); None where they tell nothing: constant above, or not finite."""
        if not len(scores) or not np.isfinite(scores).all():
            return None
        levels = np.linspace(0, TAIL_LEVEL, min(MOST_LEVELS, max(2, len(scores))))
        quantiles = np.quantile(np.asarray(scores, np.float64), levels)
        last_of_ties = np.append(quantiles[1:] > quantiles[:-1], True)
        values, start = quantiles[last_of_ties], float(quantiles[-1])
        above = scores[scores > start] - start
        excess = float(above.mean()) if len(above) else 0.0
        return cls(values, -np.log1p(-levels[last_of_ties]), excess) if excess > 0 else None

    @property
    def start(self) -> float:
        """a, where the tail begins."""
        return float(self.values[-1])

    def inside(self, scores: Array) -> Array:
        """u of scores (B,), and log(10) for those above a."""
        found: Array = np.interp(scores, self.values, self.surprise)
        return found

    def surprise_at(self, scores: Array) -> Array:
        """u (B,) of scores (B,)."""
        return self.inside(scores) + np.maximum(scores - self.start, 0.0) / self.mean_excess


@dataclass(frozen=True)
class Component:
    """One of the scores, its weight in (0, 1], and its distribution."""

    score: Score
    weight: float
    distribution: ScoreDistribution


@dataclass(frozen=True)
class FusedScore:
    """t, of a classification; at least one component."""

    components: tuple[Component, ...]
    name: ClassVar[Literal["fused"]] = "fused"

    @functools.cached_property
    def _columns(self) -> tuple[Array, Array, Array]:
        """Weights, starts of the tails and mean excesses, (J, 1) each."""
        parts = [(part.weight, part.distribution.start, part.distribution.mean_excess) for part in self.components]
        weights, starts, excesses = np.array(parts).T[:, :, np.newaxis]
        return weights, starts, excesses

    def scored(self, outputs: Outputs) -> tuple[Array, Array]:
        """t (B,), and the place of the component with the largest part of it, (B,)."""
        weights, starts, excesses = self._columns
        scores = [part.score.function(outputs) for part in self.components]
        pairs = zip(scores, self.components, strict=True)
        parts = np.array([part.distribution.inside(found) for found, part in pairs])
        # The tails of all components at once: for a few examples a call of NumPy costs more than what it computes.
        parts += np.maximum(np.array(scores) - starts, 0.0) / excesses
        parts *= weights
        return parts.sum(axis=0), parts.argmax(axis=0)


def surprises(outputs: ClassOutputs, distributions: dict[str, ScoreDistribution]) -> Array:
    """u_j of the scores that have a distribution, (B, J)."""
    scores = ((SCORES[name].scored(outputs)[0], known) for name, known in distributions.items())
    return np.stack([known.surprise_at(values) for values, known in scores], axis=1)


def feature_scores_of(scoring: Scoring) -> tuple[str, ...]:
    """Names of the feature scores that a score is, or is made of."""
    names = {part.score.name for part in scoring.components} if isinstance(scoring, FusedScore) else {scoring.name}
    return tuple(name for name in FEATURE_SCORES if name in names)
