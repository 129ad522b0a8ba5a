"""Measured figures, and how certain a share is that was counted among a number of examples. Pure NumPy."""

import math
from dataclasses import dataclass

from demur.service.maths.rejection import share_bound

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measured:
    """A figure; for a share of examples also its interval, which holds the true share with a probability of 95 %."""

    value: float
    interval: tuple[float, float] | None = None


def clopper_pearson(count: float, examples: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of Clopper and Pearson (1934) for a share of which `examples` examples showed `count`.

    Its ends are the shares at which so many examples or fewer (upper end), or so many or more (lower end), have a
    probability of (1 - confidence) / 2. A count that is not whole is rounded outwards.
    """
    each = 1 - (1 - confidence) / 2
    upper = share_bound(examples, math.ceil(count) + 1, each)
    lower = 1 - share_bound(examples, examples - math.floor(count) + 1, each)
    return lower, upper


def measured_share(share: float, examples: int) -> Measured:
    """A share of independent examples, with its interval.

    A share of targets, of which each example has several, is taken as one of examples: targets of one example are
    seldom independent, and the interval is then rather too wide.
    """
    return Measured(float(share), clopper_pearson(round(share * examples, 6), examples))
