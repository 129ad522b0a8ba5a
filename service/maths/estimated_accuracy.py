"""How often answers are right, estimated without labels by how sure they are. Pure NumPy.

The confidence of an answer is its probability to be right as the model has it. On data like the held-out ones, the mean
confidence differs from the accuracy by what it differs there. So with mean confidence c on held-out data and c' on new
ones, the accuracy a' of the new answers is estimated from that of the held-out ones, a:

    a' = c' - (c - a)

This is the difference of confidences of Guillory et al., "Predicting with Confidence on Unseen Distributions" (ICCV
2021). It is right where confidence falls as fast as accuracy does, which no one can know without labels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .rejection import share_bound

Array = npt.NDArray[Any]
BAND = 0.99


def confidence(probabilities: Array, multilabel: bool) -> Array:
    """The probability that an answer is right, (B, K) -> (B,): that of the most probable class; of labels that are
    independent, that all are right, prod_k max(p_k, 1 - p_k)."""
    p = np.asarray(probabilities, np.float64)
    found: Array = np.maximum(p, 1 - p).prod(axis=1) if multilabel else p.max(axis=1)
    return found


@dataclass(frozen=True)
class HeldOutAccuracy:
    """Of held-out examples: c - a, and the interval of Clopper and Pearson (1934) that holds the accuracy with a
    confidence of 99 %."""

    excess: float
    low: float
    high: float

    @classmethod
    def of(cls, confidences: Array, correct: Array) -> "HeldOutAccuracy | None":
        """confidences (n,), correct (n,) bool; None of no examples."""
        n = len(correct)
        if not n:
            return None
        right, side = int(np.count_nonzero(correct)), (1 + BAND) / 2
        excess = float(np.mean(confidences)) - right / n
        return cls(excess, 1 - share_bound(n, n - right + 1, side), share_bound(n, right + 1, side))
