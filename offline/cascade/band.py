"""The band of a cascade: the narrowest outside which the first stage has the verdicts of the full one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offline.runtime.arrays import Array
from service.maths.cascade import Band

SMALLEST = 1e-30  # below, a score is no scale


@dataclass(frozen=True)
class Verdicts:
    """`scores` of the first stage on some examples, and whether the full stage rejects them, (n,) both."""

    scores: Array
    rejected: Array


def choose_band(groups: Sequence[Verdicts], threshold: float, rate: float) -> Band:
    """The band with the fewest examples inside, of those outside which the stages agree; its ends are examples' scores.

    In each group of examples, a share `rate` of those with a score below `low` is accepted by the full stage, and the
    same share of those above `high` rejected. Each group counts the same, whatever its size; of bands with as many
    examples, the one with the lowest `low`.
    """
    cuts = np.unique(np.concatenate([group.scores for group in groups]))
    lows = np.append(0.0, cuts[np.all([_accepted_below(group, cuts) >= rate for group in groups], axis=0)])
    usable = cuts[cuts >= SMALLEST]
    highs = np.append(usable[np.all([_rejected_above(group, usable) >= rate for group in groups], axis=0)], math.inf)
    above = highs[np.searchsorted(highs, lows)]
    best = int(np.argmin(np.mean([_share_inside(group, lows, above) for group in groups], axis=0)))
    return Band(float(lows[best]), float(above[best]), threshold)


def _accepted_below(group: Verdicts, cuts: Array) -> Array:
    """Of the examples with a score below each cut (C,), the share that the full stage accepts; 1 for none."""
    order = np.argsort(group.scores)
    count = np.searchsorted(group.scores[order], cuts, "left")
    return _shares(np.cumsum(~group.rejected[order]), count)


def _rejected_above(group: Verdicts, cuts: Array) -> Array:
    """Of the examples with a score above each cut (C,), the share that the full stage rejects; 1 for none."""
    order = np.argsort(-group.scores)
    count = np.searchsorted(-group.scores[order], -cuts, "left")
    return _shares(np.cumsum(group.rejected[order]), count)


def _shares(running: Array, count: Array) -> Array:
    """running[count - 1] / count, and 1 for a count of 0."""
    share: Array = np.where(count > 0, running[np.maximum(count, 1) - 1] / np.maximum(count, 1), 1.0)
    return share


def _share_inside(group: Verdicts, low: Array, high: Array) -> Array:
    ordered = np.sort(group.scores)
    inside: Array = np.searchsorted(ordered, high, "right") - np.searchsorted(ordered, low, "left")
    return inside / len(ordered)
