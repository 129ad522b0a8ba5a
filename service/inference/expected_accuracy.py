"""How accurate predictions should be, by what held-out examples showed."""

import numpy as np

from probity.service.inference.deciding import Rule
from probity.service.maths.certified import CertifiedRule
from probity.service.maths.class_rules import ClassRules
from probity.service.maths.outcomes import ClassOutcomes, Outcomes
from probity.service.maths.prediction_sets import ConformalIntervals, conformal_rank
from probity.service.maths.rejection import share_bound

CONFIDENCE = 0.95


def expected_accuracy(rule: Rule, outcomes: Outcomes) -> float | None:
    """The accuracy that the rule certifies, or else the lower bound of Clopper and Pearson (1934), at a confidence of
    95 %, on that of the held-out examples which the rule accepts.

    None where it is not known: for a regression, and where nothing is accepted.
    """
    if isinstance(rule, CertifiedRule):
        return rule.certificate.accuracy
    if not isinstance(outcomes, ClassOutcomes):
        return None
    held_out = outcomes.calibration
    thresholds = rule.thresholds(held_out.predicted) if isinstance(rule, ClassRules) else rule.threshold
    accepted = held_out.scores <= thresholds
    count, errors = int(np.count_nonzero(accepted)), int(np.count_nonzero(accepted & ~held_out.correct))
    return 1 - share_bound(count, errors + 1, CONFIDENCE) if count else None


def expected_coverage(intervals: ConformalIntervals | None, level: float) -> float | None:
    """What share of the truths conformal intervals hold at least, with a confidence of 95 %; None without them.

    Intervals hold a share of `level` on average over held-out data. Given these, with the k-th smallest of n residuals
    as half-width, the share is Beta(k, n + 1 - k) distributed (Vovk, 2012); this is its 5 % quantile. Outputs have as
    many residuals each.
    """
    if intervals is None or intervals.half_widths(level) is None:
        return None
    n = len(intervals.residuals)
    return 1 - share_bound(n, n + 1 - conformal_rank(n, level), CONFIDENCE)
