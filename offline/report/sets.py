"""The report's table of the classes that prediction sets hold least often."""

import numpy as np

from demur.service.bundle import Manifest
from demur.service.maths.outcomes import ClassOutcomes, Outcomes
from demur.service.maths.prediction_sets import conformal_quantile, conformal_rank

LEVEL, SHOWN = 0.95, 10


def set_rows(manifest: Manifest, outcomes: Outcomes | None) -> list[tuple[str, str, str]]:
    """Of at most `SHOWN` classes: name, how many of its held-out examples the sets hold, and what sets by class hold.

    None where the true classes are not known, as of a regression.
    """
    if not isinstance(outcomes, ClassOutcomes) or outcomes.classes is None:
        return []
    scores, classes = outcomes.set_scores, outcomes.classes
    held = outcomes.calibration.correct | (scores <= conformal_quantile(np.sort(scores), LEVEL))
    counts = np.bincount(classes, minlength=manifest.outputs)
    holds = np.bincount(classes[held], minlength=manifest.outputs)
    shares = np.where(counts > 0, holds / np.maximum(counts, 1), 2.0)  # those without examples last
    worst = np.argsort(shares, kind="stable")[:SHOWN]
    return [(manifest.labels[k], f"{holds[k]:,} of {counts[k]:,}", _by_class(int(counts[k]))) for k in worst]


def _by_class(count: int) -> str:
    return "95 %" if conformal_rank(count, LEVEL) <= count else "in every set: too few examples"
