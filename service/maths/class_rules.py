"""Reject by the predicted class: a false-reject rate that holds within each, not only over all. Pure NumPy.

Mondrian conformal prediction (Vovk et al., 2005, chapter 4.5): the p-value of a score compares it with those held-out
examples that were predicted to be of the same group of classes. Groups hold at least `least` held-out examples each:
classes with fewer share one with the classes whose scores are most like theirs.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .outcomes import Verdicts
from .rejection import RejectionRule

Array = npt.NDArray[Any]
LEAST_EXAMPLES = 100


def class_groups(counts: Array, typical: Array, least: int) -> Array:
    """The group of each class, (K,) int.

    counts (K,): held-out examples predicted to be of a class; typical (K,): its typical score, by other examples. In
    ascending order of the typical score, classes join a group until it has `least` examples; what is left at the end
    joins the last one. Depends on the held-out examples by their counts only, so that the p-values stay valid.
    """
    groups, number, gathered = np.zeros(len(counts), int), 0, 0
    order = np.argsort(typical, kind="stable")
    for place, label in enumerate(order):
        groups[label] = number
        gathered += counts[label]
        if gathered >= least and counts[order[place + 1 :]].sum() >= least:
            number, gathered = number + 1, 0
    return groups


@dataclass(frozen=True)
class ClassRules:
    """groups (K,): the group of each class; rules: one a group, at one rate."""

    groups: Array
    rules: tuple[RejectionRule, ...]

    @classmethod
    def of(cls, verdicts: Verdicts, tuning: Verdicts | None, classes: int, rate: float, least: int) -> "ClassRules":
        """Groups of at least `least` held-out examples, by the class that was predicted."""
        counts = np.bincount(verdicts.predicted, minlength=classes)
        groups = class_groups(counts, _typical(tuning, classes), least)
        belongs = groups[verdicts.predicted]
        return cls(
            groups,
            tuple(RejectionRule(verdicts.scores[belongs == group], rate) for group in range(int(groups.max()) + 1)),
        )

    @property
    def false_reject_rate(self) -> float:
        """That of every group."""
        return self.rules[0].false_reject_rate

    @property
    def least_rate(self) -> float:
        """At a lower rate, one of the groups rejects nothing."""
        return max(rule.least_rate for rule in self.rules)

    def at(self, false_reject_rate: float) -> "ClassRules":
        """The same groups, at another rate."""
        return ClassRules(self.groups, tuple(rule.at(false_reject_rate) for rule in self.rules))

    @functools.cached_property
    def _thresholds(self) -> Array:
        return np.array([rule.threshold for rule in self.rules])[self.groups]

    @functools.cached_property
    def _examples(self) -> Array:
        return np.array([len(rule.scores) for rule in self.rules])[self.groups]

    @property
    def shared(self) -> Array:
        """The classes that share their threshold with others, ascending."""
        found: Array = np.flatnonzero(np.bincount(self.groups)[self.groups] > 1)
        return found

    def thresholds(self, labels: Array) -> Array:
        """The largest score still accepted for each predicted class, (B,) -> (B,)."""
        found: Array = self._thresholds[labels]
        return found

    def examples(self, labels: Array) -> Array:
        """How many held-out examples each is compared with, (B,) -> (B,)."""
        found: Array = self._examples[labels]
        return found

    def p_values(self, scores: Array, labels: Array) -> Array:
        """Conformal p-values within the groups of the predicted classes, (B,), (B,) -> (B,)."""
        found, groups = np.empty(len(scores)), self.groups[labels]
        for group in np.unique(groups):
            rows = groups == group
            found[rows] = self.rules[group].p_value(scores[rows])
        return found


def _typical(tuning: Verdicts | None, classes: int) -> Array:
    """The median score of each predicted class; of all of them where a class has none."""
    if tuning is None:
        return np.zeros(classes)
    whole = float(np.median(tuning.scores))
    found = np.full(classes, whole)
    for label in np.unique(tuning.predicted):
        found[label] = np.median(tuning.scores[tuning.predicted == label])
    return found
