"""The temperature T of a classification, on held-out data: of the plain network, and beside a posterior's variances.

The divisor of the logits is sqrt(T^2 + pi/8 v), so a posterior that makes every prediction less sure is fitted together
with T: what it costs is then what no temperature gives back.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from offline.data.held_out import HeldOut
from offline.data.likelihood import Classification, class_log_likelihood
from offline.network.finite import check_finite_outputs
from offline.runtime.arrays import Array, to_numpy
from service.maths.predictive import Link, link_approx

TEMPERATURE_GRID: Array = np.logspace(-1, 1, 201)
ROWS = 256
# Beside variances T is sought within this factor of the plain network's: a posterior may explain a part of what a
# temperature does, not all of it.
FACTOR = 2.0
GOLDEN, STEPS = (math.sqrt(5) - 1) / 2, 12  # 2 % of the interval's logarithm are left


def plain_temperature(network: nn.Module, data: HeldOut) -> float:
    """T_0: of the temperatures that are no worse on the data than the best, within one standard error of the
    difference, the one next to 1.

    The best one itself is uncertain where examples are few, and most of them right: 1,000 images gave from 0.6 to 0.9
    for the same network. Where all of them are right, the likelihood would have T -> 0, and a first error would cost
    without bound; so one more example counts, with a typical margin, that is wrong.
    """
    with torch.no_grad():
        mean = torch.cat([network(part).double() for part in torch.split(data.inputs, ROWS)])
    check_finite_outputs(network, data.inputs, mean, "the calibration data")
    f, y = _with_one_error(to_numpy(mean), to_numpy(data.targets))
    each = np.stack([class_log_likelihood(link_approx(f, np.zeros((len(f), 1)), t), y) for t in TEMPERATURE_GRID])
    worse = each[int(each.mean(1).argmax())] - each
    error = worse.std(axis=1) / math.sqrt(len(f))
    fitting = TEMPERATURE_GRID[worse.mean(axis=1) <= error]
    return float(fitting[np.argmin(np.abs(np.log(fitting)))])


def _with_one_error(mean: Array, targets: Array) -> tuple[Array, Array]:
    """And the example with the median margin between its two largest logits once more, labelled with the second."""
    order = np.argsort(mean, axis=1)
    largest, second = (np.take_along_axis(mean, order[:, [place]], axis=1)[:, 0] for place in (-1, -2))
    typical = int(np.argsort(largest - second)[len(mean) // 2])
    return np.append(mean, mean[[typical]], axis=0), np.append(targets, order[typical, -2])


def fit_temperature(mean: Array, variance: Array, targets: Array, link: Link = "probit") -> float:
    """The temperature on a grid from 0.1 to 10 with the best mean log-likelihood."""
    scores = [class_log_likelihood(link_approx(mean, variance, t, link), targets).mean() for t in TEMPERATURE_GRID]
    return float(TEMPERATURE_GRID[int(np.argmax(scores))])


def suited(likelihood: Classification, mean: Array, variance: Array, targets: Array) -> tuple[Classification, float]:
    """The likelihood at the temperature within a factor of 2 of the plain one that suits the variances best, and its
    mean log-likelihood, by golden-section search over log T."""

    def at(logarithm: float) -> float:
        tempered = replace(likelihood, temperature=math.exp(logarithm))
        return float(tempered.log_likelihood(mean, variance, targets).mean())

    centre = math.log(likelihood.plain_temperature)
    low, high = centre - math.log(FACTOR), centre + math.log(FACTOR)
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
    best = int(np.argmax(values))
    return replace(likelihood, temperature=math.exp(inner[best])), values[best]
