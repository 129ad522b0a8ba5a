"""Certify how accurate the accepted are: "of these, at least 99 % are right, with a confidence of 95 %". Pure NumPy.

Learn then Test (Angelopoulos et al., 2021) with a fixed sequence of thresholds. For each one in turn, the hypothesis
"fewer than `accuracy` of what this threshold accepts are right" is tested on the examples that set nothing else: with k
errors among n accepted ones, its p-value is P(Binomial(n, 1 - accuracy) <= k). The first p-value above 1 - confidence
ends the sequence. The sequence is chosen by other examples, so the probability that any threshold passes which should
not is at most 1 - confidence. It holds for traffic that is exchangeable with the held-out examples.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .outcomes import Verdicts
from .rejection import RejectionRule, binomial_below

Array = npt.NDArray[Any]
MOST_THRESHOLDS = 200
MOST_EXAMPLES = 10**9


class NotCertified(ValueError):
    """The held-out examples do not show that the accepted are as accurate as asked for.

    missing: about how many more there should be; None where these examples cannot tell.
    """

    def __init__(self, message: str, missing: int | None) -> None:
        self.missing = missing
        super().__init__(message)


@dataclass(frozen=True)
class Certificate:
    """Of what scores at most `threshold`, at least `accuracy` are right, with this confidence: the held-out examples
    show `errors` among `accepted` ones."""

    accuracy: float
    confidence: float
    threshold: float
    accepted: int
    errors: int


def p_value(accepted: int, errors: int, accuracy: float) -> float:
    """P(Binomial(accepted, 1 - accuracy) <= errors)."""
    return binomial_below(accepted, errors + 1, 1 - accuracy)


def accepted_needed(errors: int, accuracy: float, confidence: float) -> int:
    """How many accepted examples with so many errors certify the accuracy: 299 without one for 99 % with 95 %."""
    low, high = errors, errors + 1
    while p_value(high, errors, accuracy) > 1 - confidence:
        low, high = high, 2 * high
        if high > MOST_EXAMPLES:
            return MOST_EXAMPLES
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if p_value(middle, errors, accuracy) <= 1 - confidence else (middle, high)
    return high


def certify(calibration: Verdicts, tuning: Verdicts, accuracy: float, confidence: float) -> Certificate:
    """The largest threshold that passes; raises `NotCertified`.

    The sequence begins where the tuning examples pass most clearly, and goes on to larger thresholds.
    """
    thresholds = np.unique(np.quantile(tuning.scores, np.linspace(0, 1, MOST_THRESHOLDS + 1), method="higher"))
    chances = [p_value(*_counts(tuning, t), accuracy) for t in thresholds]
    found: Certificate | None = None
    for threshold in thresholds[int(np.argmin(chances)) :]:
        accepted, errors = _counts(calibration, threshold)
        if p_value(accepted, errors, accuracy) > 1 - confidence:
            break
        found = Certificate(accuracy, confidence, float(threshold), accepted, errors)
    if found is None:
        raise _refusal(len(calibration), accepted, errors, accuracy, confidence)
    return found


def _counts(verdicts: Verdicts, threshold: float) -> tuple[int, int]:
    """How many score at most the threshold, and how many of these are wrong."""
    accepted = int(verdicts.scores.searchsorted(threshold, "right"))
    return accepted, accepted - int(np.count_nonzero(verdicts.correct[:accepted]))


def _refusal(examples: int, accepted: int, errors: int, accuracy: float, confidence: float) -> NotCertified:
    """What is wrong with a threshold that accepts few errors, if any does."""
    asked = f"{100 * accuracy:.4g} % with a confidence of {100 * confidence:.4g} %"
    counted = f"{errors} error{'' if errors == 1 else 's'}"
    found = f"found {counted} among {accepted} of {examples} held-out examples, those with the lowest scores"
    if errors > accepted * (1 - accuracy) or not accepted:
        return NotCertified(f"{found}: too many to certify {asked}", None)
    needed = accepted_needed(errors, accuracy, confidence)
    more = math.ceil((needed - accepted) * examples / accepted)
    return NotCertified(f"{found}, expected {needed} with as many errors to certify {asked}", more)


@dataclass(frozen=True)
class CertifiedRule(RejectionRule):
    """Accepts what the certificate covers: score <= its threshold. p-values stay those of the scores."""

    certificate: Certificate

    @classmethod
    def of(cls, rule: RejectionRule, certificate: Certificate) -> "CertifiedRule":
        """The rule's scores; its false-reject rate becomes what the certificate's threshold costs."""
        n = len(rule.scores)
        above = n - int(rule.scores.searchsorted(certificate.threshold, "right"))
        return cls(rule.scores, (above + 1) / (n + 1), certificate)

    @functools.cached_property
    def threshold(self) -> float:
        """The certificate's."""
        return self.certificate.threshold

    def at(self, false_reject_rate: float) -> RejectionRule:
        """The rule at a rate, which certifies nothing."""
        return RejectionRule(self.scores, false_reject_rate)
