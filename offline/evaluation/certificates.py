"""The largest accuracy that a bundle certifies, and whether test data bear it out. Pure NumPy."""

import numpy as np

from offline.evaluation.measured import CONFIDENCE, Measured, measured_share
from offline.runtime.arrays import Array
from service.maths.certified import Certificate, NotCertified, certify
from service.maths.outcomes import ClassOutcomes, Outcomes

ACCURACIES = (0.999, 0.995, 0.99, 0.98, 0.95, 0.9)


def largest_certificate(outcomes: Outcomes | None) -> Certificate | None:
    """Of the largest of `ACCURACIES` that the held-out examples certify, each tested by itself; None for none.

    None also where there are no outcomes, or none that choose the order of the tests.
    """
    if not isinstance(outcomes, ClassOutcomes) or outcomes.tuning is None:
        return None
    for accuracy in ACCURACIES:
        try:
            return certify(outcomes.calibration, outcomes.tuning, accuracy, CONFIDENCE)
        except NotCertified:
            continue
    return None


def certified_figures(outcomes: Outcomes | None, score: Array, correct: Array) -> dict[str, Measured]:
    """The certified accuracy, and of the test data the share that it accepts and their accuracy; score, correct (n,).

    Empty where nothing is certified.
    """
    certificate = largest_certificate(outcomes)
    if certificate is None:
        return {}
    accepted = np.asarray(score <= certificate.threshold)
    figures = {
        "certified_accuracy": Measured(certificate.accuracy),
        "certified_accepted_share": measured_share(accepted.mean(), len(accepted)),
    }
    if accepted.any():
        right = correct[accepted]
        figures["certified_accepted_accuracy"] = measured_share(right.mean(), len(right))
    return figures
