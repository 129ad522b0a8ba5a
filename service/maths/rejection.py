"""Reject inputs: out-of-distribution scores, conformal p-values and the decision. Pure NumPy.

A score is larger the less an input resembles the calibration data. Its conformal p-value,
(1 + #{calibration score >= score}) / (n + 1), is valid for any score when the calibration data are
exchangeable with new in-distribution data (Vovk et al., 2005): rejecting at p <= alpha falsely rejects at
most a share alpha of them. The scores are in `demur.service.maths.scores`.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def minimum_calibration_examples(false_reject_rate: float) -> int:
    """The smallest n with which a conformal test at this rate can reject at all: 1 / (n + 1) <= rate."""
    return max(1, math.ceil(1 / false_reject_rate - 1e-9) - 1)


def binomial_below(n: int, k: int, x: float) -> float:
    """P(Binomial(n, x) < k), for x in (0, 1) and k >= 1."""
    first = max(0, k - math.ceil(40 * math.sqrt(n)))  # terms 80 standard deviations away are negligible
    if k > n or first > n * x:  # the mean lies below those that are left out
        return 1.0
    i = np.arange(first, k, dtype=np.float64)
    log_first = math.lgamma(n + 1) - math.lgamma(first + 1) - math.lgamma(n - first + 1)
    log_choose = log_first + np.concatenate([[0.0], np.cumsum(np.log((n - i[1:] + 1) / i[1:]))])
    return min(1.0, float(np.exp(log_choose + i * math.log(x) + (n - i) * math.log1p(-x)).sum()))


def share_bound(n: int, k: int, confidence: float) -> float:
    """The share x with P(Binomial(n, x) < k) = 1 - confidence, for a confidence of at least one half.

    It is the quantile of Beta(k, n + 1 - k) at this confidence; 0 for k = 0, and 1 for k > n. With k = d + 1 it is the
    upper bound of Clopper and Pearson (1934) on a share of which n examples showed d.
    """
    if k == 0 or k > n:
        return 0.0 if k == 0 else 1.0
    low, high = (k - 1) / n, 1.0  # at (k - 1) / n, half of the probability or more is below k
    for _ in range(50):
        x = (low + high) / 2
        low, high = (x, high) if binomial_below(n, k, x) > 1 - confidence else (low, x)
    return high


def rejection_rank(n: int, alpha: float) -> int:
    """k = floor(alpha (n + 1)): the threshold at the rate alpha is the k-th largest of n calibration scores."""
    k = min(n, math.floor(alpha * (n + 1)))
    while k < n and (k + 1) / (n + 1) <= alpha:  # the division decides, as it does for the p-value
        k += 1
    while k > 0 and k / (n + 1) > alpha:
        k -= 1
    return k


def rate_range(n: int, alpha: float, probability: float = 0.9) -> tuple[float, float]:
    """Between what the real false-reject rate of a rule at alpha lies, with this probability over calibration sets:
    quantiles of Beta(k, n + 1 - k), as `RejectionRule.rate_bound` has them."""
    k, side = rejection_rank(n, alpha), (1 + probability) / 2
    return 1 - share_bound(n, n + 1 - k, side), share_bound(n, k, side)


@dataclass(frozen=True)
class RejectionRule:
    """The calibrated rule. `scores` (n,) ascending; `false_reject_rate` alpha in (0, 1)."""

    scores: Array
    false_reject_rate: float

    @property
    def least_rate(self) -> float:
        """1 / (n + 1), the smallest p-value: at a lower rate nothing is ever rejected."""
        return 1 / (len(self.scores) + 1)

    def at(self, false_reject_rate: float) -> "RejectionRule":
        """The same scores, at another rate: nothing is fitted again."""
        return replace(self, false_reject_rate=false_reject_rate)

    @functools.cached_property
    def threshold(self) -> float:
        """The largest score still accepted: with k = floor(alpha (n + 1)), the k-th largest calibration score.

        p <= alpha  <=>  #{calibration >= score} <= k - 1  <=>  score > threshold. Infinite when k = 0: too few
        scores to reject anything at this rate.
        """
        n = len(self.scores)
        k = rejection_rank(n, self.false_reject_rate)
        return float(self.scores[n - k]) if k > 0 else math.inf

    def rate_bound(self, confidence: float = 0.999) -> float:
        """Upper bound, at this confidence, on the rule's real false-reject rate, given n calibration scores.

        The threshold is an order statistic: over calibration sets, the share of new in-distribution scores above it is
        Beta(k, n + 1 - k) distributed (Vovk, 2012). Its quantile x solves P(Binomial(n, x) < k) = 1 - confidence.
        """
        n = len(self.scores)
        return share_bound(n, rejection_rank(n, self.false_reject_rate), confidence)

    def p_value(self, score: Array) -> Array:
        """(1 + #{calibration score >= score}) / (n + 1), (B,) -> (B,)."""
        p: Array = self._p_values[self.scores.searchsorted(score)]
        return p

    @functools.cached_property
    def _p_values(self) -> Array:
        """The p-value of a score that is above 0, 1, ..., n of the calibration scores, (n + 1,)."""
        n = len(self.scores)
        return np.arange(n + 1, 0, -1) / (n + 1)

    def rejected(self, score: Array) -> Array:
        """score > threshold, (B,) -> (B,) bool; the same decision as p_value <= false_reject_rate."""
        decision: Array = np.asarray(score) > self.threshold
        return decision
