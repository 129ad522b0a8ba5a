"""The largest accuracy that a bundle certifies, and whether test data bear it out. Pure NumPy."""

from collections.abc import Sequence

import numpy as np

from demur.service.maths.certified import Certificate, NotCertified, certify
from demur.service.maths.outcomes import ClassOutcomes, Outcomes, Verdicts

from ..runtime.arrays import Array
from .measured import CONFIDENCE, Measured, measured_share

ACCURACIES = (0.999, 0.995, 0.99, 0.98, 0.95, 0.9)


def certificates(outcomes: Outcomes, accuracies: Sequence[float]) -> list[Certificate | NotCertified]:
    """For each accuracy, tested by itself, the certificate or why there is none.

    Empty for a regression, and without examples that choose the order of the tests.
    """
    if not isinstance(outcomes, ClassOutcomes) or outcomes.tuning is None:
        return []
    return [_attempt(outcomes.calibration, outcomes.tuning, accuracy) for accuracy in accuracies]


def _attempt(calibration: Verdicts, tuning: Verdicts, accuracy: float) -> Certificate | NotCertified:
    try:
        return certify(calibration, tuning, accuracy, CONFIDENCE)
    except NotCertified as error:
        return error


def largest_certificate(outcomes: Outcomes) -> Certificate | None:
    """Of the largest of `ACCURACIES` that the held-out examples certify; None for none."""
    given = (one for one in certificates(outcomes, ACCURACIES) if isinstance(one, Certificate))
    return next(given, None)


def certified_figures(outcomes: Outcomes, score: Array, correct: Array) -> dict[str, Measured]:
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
