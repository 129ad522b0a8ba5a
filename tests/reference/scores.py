"""Out-of-distribution scores."""

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference.posterior import probit_divisor, softmax

Array = npt.NDArray[np.float64]


def entropy(p: Any) -> float:
    return -sum(float(value) * math.log(value) for value in p if value > 0)


def predictive_entropy(mean: Array, var: Array, temperature: float) -> float:
    """Of one example; mean, var (K,)."""
    return entropy(softmax(np.array([f / probit_divisor(v, temperature) for f, v in zip(mean, var, strict=True)])))


def rounded_up(score: float) -> float:
    """To 14 binary digits behind the point of m in score = m 2^e, 1/2 <= |m| < 1, and one more step up; 0 is 0."""
    mantissa, exponent = math.frexp(score)
    return (math.floor(mantissa * 2**14) + 2) * 2.0 ** (exponent - 14) if score else 0.0


def pareto_tail(excesses: list[float]) -> tuple[float, float]:
    """Scale and shape by probability-weighted moments, the unbiased estimates of E[X] and E[X (1 - F(X))].

    The second is half the mean, over all pairs, of the smaller one. The shape is kept within [0, 0.9], and the mean of
    the tail is that of the excesses.
    """
    mean = sum(excesses) / len(excesses)
    pairs = [min(pair) for pair in itertools.combinations(excesses, 2)]
    between = mean - sum(pairs) / len(pairs) if pairs else 0.0
    shape = min(max(2 - mean / between, 0.0), 0.9) if between > 1e-12 * mean else 0.0
    return mean * (1 - shape), shape


def surprise(score: float, values: list[float], levels: list[float], scale: float, shape: float = 0.0) -> float:
    """-log(1 - F), linear between the quantiles `values` at `levels`, with a generalised Pareto tail above the last."""
    heights = [-math.log(1 - level) for level in levels]
    if score >= values[-1]:
        z = (score - values[-1]) / scale
        log_survival = -z if shape == 0 else -math.log(1 + shape * z) / shape
        return heights[-1] - log_survival
    for (a, b), (low, high) in zip(itertools.pairwise(values), itertools.pairwise(heights), strict=True):
        if a <= score < b:
            return low + (high - low) * (score - a) / (b - a)
    return heights[0]


def compressed_surprise(surprise: float, beyond: float, slope: float, score: float, start: float) -> float:
    """u up to `beyond`, which the score `start` has, and above a generalised Pareto tail of shape 0.9, as steep there
    as u was; slope: of u, in 1 / score."""
    return surprise if surprise <= beyond else beyond + math.log(1 + 0.9 * slope * (score - start)) / 0.9


def odds(score: float, end: float) -> float:
    """s / (e - s), of which a room e - s below a hundredth of e is a hundredth of e."""
    return score / (end / 100) if score > 0.99 * end else score / (end - score)


def largest_surprise(surprises: list[float], least: list[float]) -> float:
    """The largest one, of those that are at least `least`; 0 where none is."""
    return max([0.0, *(u for u, begin in zip(surprises, least, strict=True) if u >= begin)])
