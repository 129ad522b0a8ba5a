"""How accurate accepted predictions should be, by what held-out examples showed."""

import numpy as np

from service.inference.deciding import Rule
from service.maths.certified import CertifiedRule
from service.maths.class_rules import ClassRules
from service.maths.outcomes import ClassOutcomes, Outcomes
from service.maths.rejection import share_bound

CONFIDENCE = 0.95


def expected_accuracy(rule: Rule, outcomes: Outcomes | None) -> float | None:
    """The accuracy that the rule certifies, or else the lower bound of Clopper and Pearson (1934), at a confidence of
    95 %, on that of the held-out examples which the rule accepts.

    None where it is not known: for a regression, for bundles that keep no outcomes, and where nothing is accepted.
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
