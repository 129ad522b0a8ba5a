"""Discriminants of mistakes that have a name, by their definition, in float64, one number at a time."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def discriminant(ordinary: Array, mistaken: Array, ridge: float = 0.1, least: float = 1e-3) -> Array:
    """(S + r I)^-1 (E[std(t_m)] - E[std(t)]) as weights (T,) of coordinates as they are; ordinary, mistaken (n, T)."""
    n, width = ordinary.shape
    mean = [sum(ordinary[:, j]) / n for j in range(width)]
    deviation = [max(least, math.sqrt(sum((x - mean[j]) ** 2 for x in ordinary[:, j]) / n)) for j in range(width)]
    covariance = np.zeros((width, width))
    for i in range(width):
        for j in range(width):
            products = [(x[i] - mean[i]) / deviation[i] * (x[j] - mean[j]) / deviation[j] for x in ordinary]
            covariance[i, j] = sum(products) / n + ridge * (i == j)
    moved = np.array([(sum(mistaken[:, j]) / n - mean[j]) / deviation[j] for j in range(width)])
    return np.linalg.inv(covariance) @ moved / np.array(deviation)


def auroc(usual: Array, wrong: Array) -> float:
    """P(wrong > usual) over all pairs, ties counting half."""
    wins = [1.0 if w > u else 0.5 if w == u else 0.0 for w in wrong for u in usual]
    return sum(wins) / len(wins)


def solarised(image: Array, low: Array, high: Array) -> Array:
    """(C, H, W); low, high (C,): the range of each channel."""
    found = image.copy()
    for c, y, x in np.ndindex(*image.shape):
        if image[c, y, x] > (low[c] + high[c]) / 2:
            found[c, y, x] = low[c] + high[c] - image[c, y, x]
    return found


def swapped(image: Array, low: Array, high: Array) -> Array:
    """(C, H, W) with the channels in the other order, each in the range of its place."""
    found = np.zeros_like(image)
    last = len(image) - 1
    for c, y, x in np.ndindex(*image.shape):
        share = (image[last - c, y, x] - low[last - c]) / (high[last - c] - low[last - c])
        found[c, y, x] = low[c] + (high[c] - low[c]) * share
    return found
