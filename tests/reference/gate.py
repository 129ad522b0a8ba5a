"""The gate by its definition, slow, in float64, one input at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def gate(subnetwork: Array, added: Array, share: Array) -> Callable[[Array, float, float], tuple[Array, float]]:
    """The function from the variances v_S (K,) and v of an input, and c, to v_k (K,) and the added weights' part of it
    over r_k^2; held out: v_S (n, K), v (n,); share r_k^2."""

    def mean(own: Array) -> float:
        return float(np.mean([value / r for value, r in np.broadcast(own, share)]))

    means = sorted(mean(own) for own in subnetwork)
    medians = np.median(means), max(np.median(added), 1e-3)

    def unusual(own: Array, v: float) -> float:
        return float(mean(own) / medians[0] + v / medians[1])

    known = [unusual(own, v) for own, v in zip(subnetwork, added, strict=True)]
    start = np.quantile(known, 0.9)

    def gated(own: Array, v: float, c: float) -> tuple[Array, float]:
        u = unusual(own, v)
        allowed = c * max(u - start, 0.0)  # mean_k v_k / r_k^2
        each = [allowed * (value / medians[0] + r * v / medians[1]) / u for value, r in np.broadcast(own, share)]
        return np.array(each), float(allowed * v / medians[1] / u)

    return gated
