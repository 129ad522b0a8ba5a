"""What is decided, guaranteed, tested and measured by scores and probabilities."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def smoothed_p_value(score: float, before: list[float], tie: float) -> float:
    """(#{s_i > s} + u #{s_i = s}) / n over `before` and the score itself."""
    return (sum(other > score for other in before) + tie * (1 + sum(other == score for other in before))) / (
        len(before) + 1
    )


def drift_factors(p: float) -> list[float]:
    """The factors of the components of the martingale against exchangeability."""
    return [1 + 0.5 - p, 1.0, 1 - 0.5 + p, 0.8 / p**0.2, 0.95 / p**0.05]


def accuracy_factors(wrong: bool, accuracy: float) -> list[float]:
    """The likelihood ratio of a coin whose odds of an error are r times as bad to the one with the accuracy."""
    factors = []
    for r in (1.5, 2, 4, 8):
        odds = r * (1 - accuracy) / accuracy
        worse = odds / (1 + odds)
        factors.append(worse / (1 - accuracy) if wrong else (1 - worse) / accuracy)
    return factors


def martingale_values(observed: list[list[float]], jump: float) -> list[float]:
    """The value after each of the observations, of which each has one factor a component: of parts that begin at step k
    with 1 / (k (k + 1)), and what is in no part yet."""
    parts, values = list[list[float]](), list[float]()
    for k, factors in enumerate(observed, 1):
        for number, part in enumerate(parts):
            total = sum(part)
            parts[number] = [(1 - jump) * one + jump / len(part) * total for one in part]
        parts.append([1 / (k * (k + 1)) / len(factors)] * len(factors))
        parts = [[one * factor for one, factor in zip(part, factors, strict=True)] for part in parts]
        values.append(sum(map(sum, parts)) + 1 / (k + 1))
    return values


def calibration_error(confidences: list[float], right: list[bool], bins: int) -> float:
    """The mean over examples of |share right - mean confidence| in the bin of each, bins (i / b, (i + 1) / b]."""
    total = 0.0
    for i in range(bins):
        inside = [(c, r) for c, r in zip(confidences, right, strict=True) if i / bins < c <= (i + 1) / bins]
        total += abs(sum(c - r for c, r in inside))
    return total / len(confidences)


def set_score(probabilities: Any, label: int, penalty: float, unpenalised: int) -> float:
    """The probability of the classes down to `label`, and the penalty for its rank; ties in the classes' order. Of two
    classes, what is left to 1."""
    if len(probabilities) == 2:
        return 1 - probabilities[label]
    ranked = sorted(range(len(probabilities)), key=lambda k: (-probabilities[k], k))
    rank = ranked.index(label) + 1
    return sum(probabilities[k] for k in ranked[:rank]) + penalty * max(0, rank - unpenalised)


def quantile_of(scores: Any, level: Any) -> float:
    """The k-th smallest score, k the least whole number that is at least (n + 1) level; infinite without one."""
    k = math.ceil((len(scores) + 1) * level)
    return sorted(scores)[k - 1] if k <= len(scores) else math.inf


def binomial_below(n: int, k: int, x: float) -> float:
    """P(Binomial(n, x) < k), term by term."""
    return math.fsum(math.comb(n, i) * x**i * (1 - x) ** (n - i) for i in range(k))


def aurc(scores: list[float], wrong: list[int]) -> float:
    """The mean, over examples, of the error rate among those that score no higher."""
    risks = [[w for t, w in zip(scores, wrong, strict=True) if t <= s] for s in scores]
    return sum(sum(risk) / len(risk) for risk in risks) / len(scores)


def augrc(scores: list[float], wrong: list[int]) -> float:
    """How often an error is accepted if a random example's score is the threshold; ties half."""
    pairs = [w * (1.0 if s < t else 0.5 if s == t else 0.0) for s, w in zip(scores, wrong, strict=True) for t in scores]
    return sum(pairs) / len(scores) ** 2
