"""Noise that depends on the input, by its definition, slow, in float64, one example and one output at a time."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
RIDGES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass
class Found:
    """scale: from psi (m,) and f (K,) of an input to s (K,); left_out: s (n, K); gain, error; ridge."""

    scale: Callable[[Array, Array], Array]
    left_out: Array
    gain: float
    error: float
    ridge: float


def minimise(rows: Array, squares: Array, ridge: float) -> Array:
    """By gradient descent, each step the longest of its halves that makes enough of it."""
    w, step = np.zeros(rows.shape[1]), 1.0

    def loss(w: Array) -> float:
        logarithms = rows @ w
        likely = (logarithms + squares * np.exp(np.minimum(-logarithms, 300))) / 2
        return float(ridge / 2 * np.square(w[:-1]).sum() + likely.sum())

    for _ in range(3000):
        gradient = ridge * np.append(w[:-1], 0.0) + rows.T @ (1 - squares * np.exp(-(rows @ w))) / 2
        norm = float(gradient @ gradient)
        if norm < 1e-12:
            break
        step *= 4
        while loss(w - step * gradient) > loss(w) - step * norm / 2:
            step /= 2
            if step < 1e-12:
                return w
        w = w - step * gradient
    return w


def log_likelihood(logarithm: float, square: float) -> float:
    return -(logarithm + square * math.exp(-logarithm)) / 2


def row(psi: Array, mean: Array, p: Array, f: Array, k: int) -> Array:
    """Of an input, p (m,) and f (K,), for output k: features without their mean, the prediction, and a one."""
    spread = float(np.std(mean[:, k]))
    centre = float(np.mean(mean[:, k]))
    slope = 0.3 * (f[k] - centre) / spread if spread > 1e-4 * abs(centre) else 0.0
    return np.array([*(p - psi.mean(axis=0)), slope, 1.0])


def fitted(rows: Array, squares: Array, ridge: float) -> Callable[[Array], float]:
    """From a row to log s_k^2, within those of the rows."""
    w = minimise(rows, squares, ridge)
    inside = [float(one @ w) for one in rows]
    return lambda row: min(max(float(row @ w), min(inside)), max(inside))


def left_out(rows: Array, squares: Array, fold: Array, ridge: float) -> tuple[Array, Array]:
    """log s_k^2 of each example by those of the other folds, and that of one noise for all, (n,) both."""
    logarithms, alike = np.zeros(len(rows)), np.zeros(len(rows))
    for number in range(5):
        others = [n for n in range(len(rows)) if fold[n] != number]
        found = fitted(rows[others], squares[others], ridge)
        for n in range(len(rows)):
            if fold[n] == number:
                logarithms[n], alike[n] = found(rows[n]), math.log(np.mean(squares[others]))
    return logarithms, alike


def gain_of(each: list[tuple[Array, Array]], squares: Array) -> Array:
    """Of each example, summed over the outputs, (n,)."""
    found = np.zeros(len(squares))
    for n in range(len(squares)):
        for k, (logarithms, alike) in enumerate(each):
            found[n] += log_likelihood(logarithms[n], squares[n, k]) - log_likelihood(alike[n], squares[n, k])
    return found


def heavy_log_likelihood(logarithms: Array, squares: Array) -> Array:
    """Of each example by Student's density of four degrees, without constants, with the likeliest common factor of all
    variances, which thirds of an interval enclose, (n,)."""

    def of_each(factor: float) -> Array:
        variances = [math.exp(logarithm + factor) for logarithm in logarithms]
        each = zip(variances, np.maximum(squares, 1e-9).tolist(), strict=True)
        return np.array([-math.log(v) / 2 - 5 / 2 * math.log(1 + square / (4 * v)) for v, square in each])

    low, high = -30.0, 10.0
    for _ in range(100):
        third = (high - low) / 3
        if of_each(low + third).sum() < of_each(high - third).sum():
            low += third
        else:
            high -= third
    return of_each((low + high) / 2)


def error_of(values: Array) -> float:
    """Of their mean."""
    return float(np.std(values)) / math.sqrt(len(values))


def far_scale(scale: float, unusual: float, threshold: float) -> float:
    """s' of an input whose u and u_0 these are."""
    share = 1.0
    for _ in range(8):
        share *= max(unusual - threshold, 0.0) / unusual
    return (1 - share) * scale + share * max(scale, 1.0)


def told_noise(values: Array, squares: Array) -> tuple[str, Array] | None:
    """What the values r (n, K) that a network gives beside its means are, and s (n, K); as `ToldNoise.fit`."""
    readings: dict[str, Callable[[float], float]] = {
        "log variance": math.exp,
        "variance": float,
        "standard deviation": lambda r: r**2,
    }
    found: dict[str, tuple[float, Array]] = {}  # those that gain more than chance explains
    for name, variance in readings.items():
        if name != "log variance" and values.min() <= 0:
            continue
        told = np.array([[variance(float(r)) for r in row] for row in values])
        told *= [np.mean(squares[:, k] / told[:, k]) for k in range(values.shape[1])]
        gains = np.zeros(len(told))
        for i, k in np.ndindex(*told.shape):
            one_noise = log_likelihood(0.0, float(squares[i, k]))
            gains[i] += log_likelihood(math.log(told[i, k]), float(squares[i, k])) - one_noise
        if gains.mean() > max(1e-3, 2.33 * gains.std() / math.sqrt(len(gains))):
            found[name] = gains.mean(), np.sqrt(told)
    best = max(found, key=lambda name: found[name][0], default=None)
    return None if best is None else (best, found[best][1])


def input_noise(psi: Array, mean: Array, squares: Array, seed: int) -> Found | None:
    """As `InputNoise.fit`."""
    count, outputs = squares.shape
    inputs = sorted({tuple(np.round(p, 6)) for p in psi})
    if len(inputs) < 50:
        return None
    numbers = np.random.default_rng(seed).permutation(len(inputs)) % 5
    fold = np.array([numbers[inputs.index(tuple(np.round(p, 6)))] for p in psi])
    rows = [np.array([row(psi, mean, psi[n], mean[n], k) for n in range(count)]) for k in range(outputs)]
    known = {ridge: [left_out(rows[k], squares[:, k], fold, ridge) for k in range(outputs)] for ridge in RIDGES}
    gains = {ridge: gain_of(each, squares) for ridge, each in known.items()}
    best = max(RIDGES, key=lambda ridge: gains[ridge].mean())
    behind = {ridge: gains[best] - gains[ridge] for ridge in RIDGES}
    ridge = max(ridge for ridge in RIDGES if behind[ridge].mean() <= error_of(behind[ridge]))
    gain, error = float(gains[ridge].mean()), error_of(gains[ridge])
    heavy = np.zeros(count)
    for k, (of_inputs, of_all) in enumerate(known[ridge]):
        heavy += heavy_log_likelihood(of_inputs, squares[:, k]) - heavy_log_likelihood(of_all, squares[:, k])
    if gain <= 0 or heavy.mean() <= 2.33 * error_of(heavy):
        return None
    logarithms = np.array([each[0] for each in known[ridge]]).T
    excess = [math.log(np.mean(squares[:, k] * np.exp(-logarithms[:, k]))) for k in range(outputs)]
    final = [fitted(rows[k], squares[:, k], ridge) for k in range(outputs)]

    def scale(p: Array, f: Array) -> Array:
        return np.array([math.exp((final[k](row(psi, mean, p, f, k)) + excess[k]) / 2) for k in range(outputs)])

    return Found(scale, np.exp((logarithms + np.array(excess)) / 2), gain, error, ridge)
