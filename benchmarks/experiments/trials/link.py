"""Probabilities softmax(f / sqrt(T^2 + pi/8 v)), one v for all outputs of an example, and what they are worth."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

Array = npt.NDArray[Any]
MOST = 8.0  # the temperature lies within this factor of 1
TOLERANCE = 1e-3  # of its logarithm


def log_likelihood(logits: Array, classes: Array) -> float:
    """Mean log-probability of the class, nats."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    chosen = shifted[np.arange(len(classes)), classes]
    return float((chosen - np.log(np.exp(shifted).sum(axis=1))).mean())


def divided(logits: Array, variance: Array, temperature: float) -> Array:
    """f / sqrt(T^2 + pi/8 v); variance (n,)."""
    found: Array = logits / np.sqrt(temperature**2 + math.pi / 8 * variance)[:, np.newaxis]
    return found


def best_temperature(logits: Array, variance: Array, classes: Array) -> tuple[float, float]:
    """The likeliest T, and the mean log-likelihood with it."""

    def cost(logarithm: float) -> float:
        return -log_likelihood(divided(logits, variance, math.exp(logarithm)), classes)

    bounds = (-math.log(MOST), math.log(MOST))
    found = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": TOLERANCE})
    return math.exp(float(found.x)), -float(found.fun)


def within_budget(
    logits: Array, classes: Array, scales: Array, variance_at: Callable[[float], Array], budget: float
) -> tuple[float, float]:
    """The largest of the scales, and its T, whose best log-likelihood is at most `budget` below that without variance.

    scales: ascending, in the uncertainty that they give; the first where none is affordable.
    """
    _, plain = best_temperature(logits, np.zeros(len(logits)), classes)
    for scale in scales[::-1]:
        temperature, reached = best_temperature(logits, variance_at(float(scale)), classes)
        if reached >= plain - budget:
            return float(scale), temperature
    return float(scales[0]), best_temperature(logits, variance_at(float(scales[0])), classes)[0]
