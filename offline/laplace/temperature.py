"""The temperature T of a classification, on held-out data: of the plain network, and beside a posterior's variances.

The divisor of the logits is sqrt(T^2 + pi/8 v), so a posterior that makes every prediction less sure is fitted together
with T: what it costs is then what no temperature gives back. Where examples are few and all of them right, the
likelihood alone would have T -> 0, and a first error would cost without bound; so T has a prior, and the best one is

    argmax_T  sum_n log p(y_n | T) - (log T)^2 / (2 s^2),   s = 0.5.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from ..data.held_out import HeldOut
from ..data.likelihood import Classification
from ..network.finite import check_finite_outputs
from ..runtime.arrays import Array, to_numpy

LEAST, MOST = 0.1, 7.0  # T, of nearly every network
EDGE, WIDER, FURTHEST = 0.02, 2.0, 8.0  # of log T: where the best lies that near to an end, it is sought beyond
SPREAD = 0.5  # s
GOLDEN, STEPS = (math.sqrt(5) - 1) / 2, 14  # 1 % of T are left
ROWS = 256


def plain_temperature(likelihood: Classification, network: nn.Module, data: HeldOut) -> float:
    """T_0: the best one without a posterior."""
    with torch.no_grad():
        mean = torch.cat([network(part).double() for part in torch.split(data.inputs, ROWS)])
    check_finite_outputs(network, data.inputs, mean, "the calibration data")
    f = to_numpy(mean)
    return suited(likelihood, f, 0.0 * f[:, :1], to_numpy(data.targets)).temperature


def suited(likelihood: Classification, mean: Array, variance: Array, targets: Array) -> Classification:
    """The likelihood at the temperature that suits the variances best.

    mean (n, K), variance (n, K) or (n, 1), as the likelihood's link takes them.
    """

    def at(logarithm: float) -> float:
        tempered = replace(likelihood, temperature=math.exp(logarithm))
        fit = float(tempered.log_likelihood(mean, variance, targets).mean())
        return fit - logarithm**2 / (2 * SPREAD**2 * len(mean))

    low, high = math.log(LEAST), math.log(MOST)
    best = _highest(at, low, high)
    while min(best - low, high - best) < EDGE and abs(best) < FURTHEST:
        low, high = (low - WIDER, high) if best - low < EDGE else (low, high + WIDER)
        best = _highest(at, low, high)
    return replace(likelihood, temperature=math.exp(best))


def _highest(at: Callable[[float], float], low: float, high: float) -> float:
    """Where `at` is largest between the two, by golden-section search."""
    inner = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)]
    values = [at(inner[0]), at(inner[1])]
    for _ in range(STEPS - 2):
        if values[0] >= values[1]:
            high, inner, values = inner[1], [0.0, inner[0]], [0.0, values[0]]
            inner[0] = high - GOLDEN * (high - low)
            values[0] = at(inner[0])
        else:
            low, inner, values = inner[0], [inner[1], 0.0], [values[1], 0.0]
            inner[1] = low + GOLDEN * (high - low)
            values[1] = at(inner[1])
    return inner[0] if values[0] >= values[1] else inner[1]
