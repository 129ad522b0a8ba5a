"""Weights of a fused score: how much each score's surprise tells shifted examples from ordinary ones."""

import math

import numpy as np

from ..runtime.arrays import Array

PENALTY = 1e-3  # of the squared weights, in units of one standard deviation each
STEPS = 3000


def fit_weights(ordinary: Array, shifted: Array) -> Array:
    """Non-negative weights of sum 1, (J,), or all zeros where no score tells anything; ordinary (n, J), shifted (m, J).

    Logistic regression in which both groups weigh the same:

        min over b, w >= 0 of mean log(1 + exp(b + w z)) over ordinary + mean log(1 + exp(-b - w z)) over shifted
                              + PENALTY |w|^2,

    z the surprises in units of their standard deviation. Strictly convex in w: the minimum is unique, and the
    accelerated projected gradient (Beck and Teboulle, 2009) that finds it is deterministic.
    """
    both = np.concatenate([ordinary, shifted])
    scale = both.std(axis=0)
    useful = scale > 0
    if not useful.any():
        return np.zeros(both.shape[1])
    z = np.column_stack([(both[:, useful] - both[:, useful].mean(axis=0)) / scale[useful], np.ones(len(both))])
    sign = np.repeat([-1.0, 1.0], [len(ordinary), len(shifted)])
    share = np.repeat([1 / len(ordinary), 1 / len(shifted)], [len(ordinary), len(shifted)])
    found = np.zeros(both.shape[1])
    found[useful] = _minimised(z * sign[:, np.newaxis], share)[:-1] / scale[useful]
    total = found.sum()
    return found / total if total > 0 else found


def _minimised(z: Array, share: Array) -> Array:
    """(w, b), (J + 1,); z (n, J + 1) signed so that a good weight makes z w large, share (n,) of the two means."""
    penalty = np.full(z.shape[1], 2 * PENALTY)
    penalty[-1] = 0.0
    lower = np.zeros(z.shape[1])
    lower[-1] = -math.inf
    curvature = float(np.linalg.eigvalsh((z * share[:, np.newaxis]).T @ z)[-1]) / 4 + 2 * PENALTY
    point = previous = np.zeros(z.shape[1])
    momentum = 1.0
    for _ in range(STEPS):
        gradient = penalty * point - z.T @ (share * _logistic(-z @ point))
        current = np.maximum(point - gradient / curvature, lower)
        ahead = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = current + (momentum - 1) / ahead * (current - previous)
        previous, momentum = current, ahead
    return previous


def _logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    found: Array = 0.5 * (1 + np.tanh(x / 2))
    return found
