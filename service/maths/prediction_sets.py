"""Conformal prediction sets and intervals: they hold the truth with a stated probability. Pure NumPy.

For new examples that are exchangeable with the n held-out ones, whatever the network: a set of all candidates whose
nonconformity is at most the k-th smallest of the held-out examples', k = ceil((n + 1) level), holds the truth with a
probability of at least `level` (Vovk et al., 2005). It holds on average over examples, not for each kind of them; with
`ClassSets`, for each true class.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
PENALTIES = (0.0, 0.001, 0.01, 0.1)  # larger ones leave one class in the sets of doubtful inputs, too
UNPENALISED = (1, 2, 5)
TUNED_LEVELS = (0.9, 0.95, 0.99)
LIKELY = 0.5  # from this probability on, an example is said to have a label


def conformal_rank(n: int, level: float) -> int:
    """k = ceil((n + 1) level): the k-th smallest of n scores is at least a new one with this probability or more."""
    return math.ceil((n + 1) * level - 1e-9)


def check_level(level: float) -> None:
    """`ValueError` for anything but a probability between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"level: found {level!r:.30}, expected a number between 0 and 1, such as 0.95")


def conformal_quantile(ascending: Array, level: float) -> Array:
    """The k-th of the sorted scores (n, ...) -> (...), k = `conformal_rank`; infinite where k > n: too few scores.

    Raises `ValueError` for a level that is none.
    """
    check_level(level)
    n = len(ascending)
    k = conformal_rank(n, level)
    return np.full(ascending.shape[1:], math.inf) if k > n else np.asarray(ascending[k - 1])


def set_scores(probabilities: Array, penalty: float, unpenalised: int) -> Array:
    """The nonconformity of each class, (B, K) -> (B, K) float64.

    With the classes in descending order of probability, the one at rank r (1 for the first) has

        s = p_(1) + ... + p_(r) + penalty max(0, r - unpenalised)

    (RAPS: Angelopoulos et al., "Uncertainty sets for image classifiers using conformal prediction", ICLR 2021, equation
    4, without its random part, so that the same input always gets the same set). Of two classes, s = 1 - p: the sum
    says nothing of the less probable one, and sets would hold both for most inputs wherever one in twenty is wrong.
    """
    p = np.asarray(probabilities, np.float64)
    if p.shape[1] == 2:
        return 1 - p
    order, rows = descending(p), np.arange(len(p))[:, np.newaxis]
    scores = _ranked_scores(p[rows, order], penalty, unpenalised)
    found = np.empty_like(scores)
    found[rows, order] = scores
    return found


def descending(probabilities: Array) -> Array:
    """(B, K): the classes in descending order of probability; of equal ones, the first comes first."""
    return np.argsort(-probabilities, axis=1, kind="stable")


def _ranked_scores(ranked: Array, penalty: float, unpenalised: int) -> Array:
    """`set_scores` of probabilities (B, K) in descending order, in which they ascend."""
    if ranked.shape[1] == 2:
        return 1 - ranked
    scores = ranked.cumsum(axis=1)
    if penalty:
        scores += penalty * np.maximum(0, np.arange(1, ranked.shape[1] + 1) - unpenalised)
    return scores


@dataclass(frozen=True)
class PredictionSets:
    """scores (n,): those of the true classes of the held-out examples."""

    scores: Array
    penalty: float
    unpenalised: int

    @functools.cached_property
    def _ascending(self) -> Array:
        return np.sort(self.scores)

    def members(self, probabilities: Array, level: float) -> Array:
        """Which classes belong to the set of this level, (B, K) -> (B, K) bool.

        The most probable class always does: a larger set holds the truth as often or more, and none is empty.
        """
        order = descending(np.asarray(probabilities, np.float64))
        found, rows = np.empty(order.shape, bool), np.arange(len(order))[:, np.newaxis]
        found[rows, order] = self.ranked_members(probabilities, order, level)
        return found

    def ranked_members(self, probabilities: Array, order: Array, level: float) -> Array:
        """The same of the classes in the `order` (B, K) that `descending` gives, (B, K) -> (B, K) bool."""
        ranked = np.asarray(probabilities, np.float64)[np.arange(len(order))[:, np.newaxis], order]
        scores = _ranked_scores(ranked, self.penalty, self.unpenalised)
        found: Array = scores <= self.largest_scores(level, order)
        found[:, 0] = True
        return found

    def largest_scores(self, level: float, order: Array) -> Array:  # noqa: ARG002  all classes have one
        """Up to which score a class belongs to a set: of all, or of each in `order` (B, K)."""
        return conformal_quantile(self._ascending, level)


@dataclass(frozen=True)
class ClassSets(PredictionSets):
    """Sets that hold the truth with a probability of at least `level` given any true class: its score is compared with
    those of the held-out examples of this class alone (Vovk, 2012; Ding et al., 2023).

    classes (n,): the true ones, of `outputs`. A class with too few examples for the level belongs to every set.
    """

    classes: Array
    outputs: int

    @functools.cached_property
    def _ascending_by_class(self) -> list[Array]:
        return [np.sort(self.scores[self.classes == k]) for k in range(self.outputs)]

    def largest_scores(self, level: float, order: Array) -> Array:
        """(B, K): by the examples of each class."""
        return np.array([conformal_quantile(own, level) for own in self._ascending_by_class])[order]


def label_set_scores(probabilities: Array) -> Array:
    """The nonconformity of not having each label and of having it: p and 1 - p, (B, K) -> (B, K, 2) float64."""
    p = np.asarray(probabilities, np.float64)
    return np.stack([p, 1 - p], axis=2)


@dataclass(frozen=True)
class LabelSets:
    """scores (n, K): of what is true of each label of the held-out examples."""

    scores: Array

    @functools.cached_property
    def _ascending(self) -> Array:
        return np.sort(self.scores, axis=0)

    def members(self, probabilities: Array, level: float) -> Array:
        """Whether not having a label and having it belong to its set of this level, (B, K) -> (B, K, 2) bool.

        Each label's set holds the truth with a probability of at least `level`; the more probable value is always in.
        """
        found: Array = label_set_scores(probabilities) <= conformal_quantile(self._ascending, level)[:, np.newaxis]
        likely = probabilities >= LIKELY
        found[..., 1] |= likely
        found[..., 0] |= ~likely
        return found


def tuned_sets(probabilities: Array, targets: Array) -> tuple[float, int]:
    """The (penalty, unpenalised) whose sets are smallest on average, over `TUNED_LEVELS`; ties go to the smaller ones.

    probabilities (m, K), targets (m,): of examples that do not calibrate the sets.
    """
    best, least = (PENALTIES[0], UNPENALISED[0]), math.inf
    for penalty in PENALTIES:
        for unpenalised in UNPENALISED if penalty else UNPENALISED[:1]:
            scores = set_scores(probabilities, penalty, unpenalised)
            own = np.sort(scores[np.arange(len(targets)), targets])
            size = sum(
                np.maximum(1, (scores <= conformal_quantile(own, level)).sum(1)).mean() for level in TUNED_LEVELS
            )
            if size < least - 1e-9:
                best, least = (penalty, unpenalised), size
    return best


@dataclass(frozen=True)
class ConformalIntervals:
    """residuals (n, K): |y - mean| / std of held-out examples."""

    residuals: Array

    @functools.cached_property
    def _ascending(self) -> Array:
        """The residuals of each output, sorted, (n, K)."""
        return np.sort(self.residuals, axis=0)

    def half_widths(self, level: float) -> Array | None:
        """q (K,): mean -+ q std holds an output with a probability of at least `level`; None for too few residuals."""
        found = conformal_quantile(self._ascending, level)
        return found if np.isfinite(found).all() else None

    def around(self, mean: Array, std: Array, level: float) -> tuple[Array, Array] | None:
        """The intervals mean -+ q std, (B, K) both; None for too few residuals."""
        q = self.half_widths(level)
        return None if q is None else (mean - q * std, mean + q * std)
