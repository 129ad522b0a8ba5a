"""How close any subnetwork can come on the training inputs: a bound that no choice of weights and no prior beats.

With every other weight fixed, the mean predictive variance over the training inputs is

    (1 / N) sum_n J_Sn (H_SS + lambda_S I)^-1 J_Sn^T = (sigma^2 / N) tr(H_SS (H_SS + lambda_S I)^-1) <= S sigma^2 / N

(over a random part of the training inputs, as here, up to sampling), so that a network whose data determine more than S
directions cannot be matched by S weights.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq  # type: ignore[import-untyped]

Array = npt.NDArray[Any]


def gaussian_divergence(full: Array, other: Array) -> Array:
    """KL(N(f, full) || N(f, other)) for each point: (r - 1 - log r) / 2, r = full / other."""
    ratio = full / other
    values: Array = (ratio - 1 - np.log(ratio)) / 2
    return values


def least_divergence(full: Array, noise: float, mean_variance: float) -> float:
    """The smallest mean KL over variances b_n of at least `noise` with mean(b - noise) <= `mean_variance`.

    full (n,): the full network's predictive variances, noise included. Convex for b <= full, so at the minimum every
    point gains alike: (full - b) / b^2 = mu wherever b > noise.
    """
    if mean_variance >= float(np.mean(full - noise)):
        return 0.0

    def allotted(log_mu: float) -> Array:
        mu = np.exp(log_mu)
        b: Array = np.clip(2 * full / (1 + np.sqrt(1 + 4 * mu * full)), noise, full)
        return b

    log_mu = brentq(lambda value: float(np.mean(allotted(value) - noise)) - mean_variance, -40, 60)
    return float(gaussian_divergence(full, allotted(log_mu)).mean())
