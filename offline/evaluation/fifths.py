"""Coverage where it may differ: in each fifth of the predictions, and in each fifth of their widths."""

import numpy as np

from demur.service.inference.prediction import Prediction
from demur.service.maths.outcomes import RegressionOutcomes
from demur.service.maths.prediction_sets import ConformalIntervals

from ..runtime.arrays import Array

FIFTHS = ("smallest", "second smallest", "middle", "second largest", "largest")
LEAST_EXAMPLES = 100  # of all fifths: of fewer, chance explains whatever is found


def fifths_covered(
    prediction: Prediction, targets: Array, outcomes: RegressionOutcomes, level: float = 0.95
) -> dict[str, Array]:
    """The share of targets (n, K) that the intervals hold as they are served, by fifths of the `prediction` and of the
    `width`, ascending, (5, K) each; nothing for few examples. outcomes: as the bundle keeps them."""
    mean, std = prediction.mean, prediction.std
    if std is None or len(prediction) < LEAST_EXAMPLES:
        return {}
    found = ConformalIntervals(outcomes.residuals).around(mean, std, level)
    if found is None:
        return {}
    held = (found[0] <= targets) & (targets <= found[1])
    return {"prediction": _by_fifths(mean, held), "width": _by_fifths(std, held)}


def _by_fifths(values: Array, held: Array) -> Array:
    """The share of `held` in each fifth of the values, (n, K) both -> (5, K)."""
    ordered = np.take_along_axis(held, np.argsort(values, axis=0, kind="stable"), axis=0)
    return np.stack([part.mean(axis=0) for part in np.array_split(ordered, len(FIFTHS))])
