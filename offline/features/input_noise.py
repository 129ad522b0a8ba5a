"""Noise that depends on the input: of a regression, the logarithm of the noise is linear in what the network sees,

    sigma_k(x) = sigma r_k s_k(x),   log s_k^2(x) = w_k^T psi(x) + u_k f_k(x) + b_k,

psi the random features of the distance in the eigenvectors that are kept (`FeatureVariance.at`), f_k the
prediction. Columns that the mean ignores may tell the noise, and hidden activations do not show them; and of prices,
the noise grows with the prediction. With residuals e = (y_k - f_k) / (sigma r_k) of held-out examples and an intercept,

    min_w  sum_n (log s_k^2(x_n) + e_n^2 / s_k^2(x_n)) / 2 + ridge / 2 |w_k|^2,

the Gaussian likelihood of a log-linear variance (Harvey, 1976), which is convex; u_k is among the w_k, of f_k
standardised and times `SLOPE`. The ridge is the largest under which examples that five-fold cross-validation leaves out
are as likely as under the best, but for a paired standard error. Whether s is worth it is told by a Student
distribution, so that the one residual in hundreds that no noise explains does not outweigh all others. b_k makes the
mean of e^2 / s_k^2 one, since s fits its own better than others. s ends at its smallest and its largest value there.

Far from the training data it says nothing: the mean of random features makes it smaller than 1. So what is served is

    s'_k = s_k + p^8 (max(s_k, 1) - s_k),   p = max(1 - u_0 / u, 0), the share that the gate lets through:

of inputs 10, 50 and 200 times as unusual as nine in ten ordinary ones, the noise is 43, 85 and 96 % of the way from s
to no less than one noise for all. A smaller power makes ordinary ones beyond the gate less likely.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..runtime.arrays import Array, to_numpy

FOLDS = 5
ERRORS = 2.33  # standard errors that a gain must be: with heavy tails, chance passes 1.64 in one case of six
FREEDOM = 4  # degrees of the Student distribution: what is far out counts by its logarithm
LEAST_EXAMPLES = 50  # with different inputs; fewer have told noise by chance
RIDGES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # ascending
SLOPE = 0.3  # of a prediction one deviation from the mean, beside |psi| <= sqrt(2)
MOST_OUTPUTS = 64  # each has a fit of its own
LEAST_SPREAD = 1e-4  # of predictions, relative to their mean
DIGITS = 6  # of psi, by which inputs are alike
FAR = 8  # the power of what the gate lets through
STEPS, HALVINGS = 50, 30
TINY = 1e-9  # of e^2: where most residuals are zero, nothing overflows
CONVERGED = 1e-9  # nats an example


@dataclass(frozen=True)
class InputNoise:
    """s: weights w / 2 (m, K), slopes u / 2 and offset b / 2 (K,); log s from low to high (K,). gain, error: of the
    log-likelihood of an example left out, mean and standard error, in nats."""

    weights: Tensor
    slopes: Tensor
    offset: Tensor
    low: Tensor
    high: Tensor
    gain: float
    error: float

    def __call__(self, psi: Tensor, mean: Tensor, passed: Tensor) -> Tensor:
        """s' (B, K); psi (B, m), mean (B, K), p (B, 1), in the precision of the fields."""
        logarithm = psi @ self.weights + (mean * self.slopes + self.offset)
        scale = torch.minimum(torch.maximum(logarithm, self.low), self.high).exp()
        return scale + passed.pow(FAR) * (scale.clamp(min=1.0) - scale)

    def of(self, psi: Array, mean: Array, passed: Array) -> Array:
        """The same in NumPy, float64."""
        return to_numpy(self(*(torch.from_numpy(each) for each in (psi, mean, passed))))

    @classmethod
    def fit(cls, psi: Array, mean: Array, squares: Array, seed: int) -> "tuple[InputNoise, Array] | None":
        """Of n held-out examples, and s (n, K) of each by the examples of the other folds; None where the gain may be
        chance, or the examples are few.

        psi (n, m), mean (n, K), squares e^2 (n, K), whose means are one; float64.
        """
        count, outputs = squares.shape
        known = np.isfinite(psi).all() and np.isfinite(squares).all()
        different, copies = np.unique(np.round(psi, DIGITS), axis=0, return_inverse=True)
        if len(different) < LEAST_EXAMPLES or outputs > MOST_OUTPUTS or not known:
            return None
        squares = np.maximum(squares, TINY)
        fold = np.random.default_rng(seed).permutation(len(different))[copies] % FOLDS  # copies stay together
        centre, spread = mean.mean(axis=0), mean.std(axis=0)
        # Of predictions far from zero, float32 keeps too few digits.
        factor = np.where(spread > LEAST_SPREAD * np.abs(centre), SLOPE / np.maximum(spread, TINY), 0.0)
        centred = psi - psi.mean(axis=0)

        def design(k: int) -> Array:  # made anew each time: they differ in one column, and K may be large
            return np.column_stack([centred, factor[k] * (mean[:, k] - centre[k]), np.ones(count)])

        left_out = [_left_out(design(k), y, fold) for k, y in enumerate(squares.T)]
        tried, one = (np.stack(each, axis=-1) for each in zip(*left_out, strict=True))
        gains = (log_likelihoods(tried, squares) - log_likelihoods(one, squares)).sum(axis=-1)
        behind = gains[gains.mean(axis=1).argmax()] - gains
        chosen = int(np.flatnonzero(behind.mean(axis=1) <= behind.std(axis=1) / math.sqrt(count))[-1])
        gain, error = float(gains[chosen].mean()), float(gains[chosen].std() / math.sqrt(count))
        heavy = (heavy_log_likelihoods(tried[chosen], squares) - heavy_log_likelihoods(one, squares)).sum(axis=-1)
        if not (gain > 0 and heavy.mean() > ERRORS * heavy.std() / math.sqrt(count)):
            return None
        excess = np.log((squares * np.exp(-tried[chosen])).mean(axis=0))
        fitted = np.stack([_fit(design(k), y, RIDGES[chosen]) for k, y in enumerate(squares.T)], axis=1)
        inside = np.stack([design(k) @ w for k, w in enumerate(fitted.T)], axis=1) + excess
        w, u = fitted[:-2], fitted[-2] * factor
        b = fitted[-1] + excess - psi.mean(axis=0) @ w - u * centre
        weights, slopes, offset = (torch.from_numpy(part / 2) for part in (w, u, b))
        low, high = (torch.from_numpy(end(inside, axis=0) / 2) for end in (np.min, np.max))
        return cls(weights, slopes, offset, low, high, gain, error), np.exp((tried[chosen] + excess) / 2)


def _left_out(design: Array, squares: Array, fold: Array) -> tuple[Array, Array]:
    """log s^2 of each example by those of the other folds: for each ridge (I, n), and with one s for all (n,)."""
    tried, one = np.zeros((len(RIDGES), len(squares))), np.zeros(len(squares))
    for number in range(FOLDS):
        own, others = fold == number, fold != number
        one[own] = np.log(squares[others].mean())
        start = None
        for i in reversed(range(len(RIDGES))):
            start = _fit(design[others], squares[others], RIDGES[i], start)
            inside = design[others] @ start
            tried[i, own] = np.clip(design[own] @ start, inside.min(), inside.max())
    return tried, one


def log_likelihoods(logarithm: Array, squares: Array) -> Array:
    """Of e^2 under log s^2, without constants."""
    found: Array = -(logarithm + squares * np.exp(-logarithm)) / 2
    return found


def heavy_log_likelihoods(logarithm: Array, squares: Array) -> Array:
    """Of e^2 (n, K) under a Student distribution whose scale is s times the likeliest number, without constants; that
    number by expectation and maximisation (Lange, Little and Taylor, 1989)."""
    ratios = squares * np.exp(-logarithm)
    scale = np.maximum(np.median(ratios, axis=0), TINY)
    for _ in range(STEPS):
        scale = ((FREEDOM + 1) * ratios / (FREEDOM + ratios / scale)).mean(axis=0)
    found: Array = -(logarithm + np.log(scale) + (FREEDOM + 1) * np.log1p(ratios / scale / FREEDOM)) / 2
    return found


def _fit(design: Array, squares: Array, ridge: float, start: Array | None = None) -> Array:
    """w (m + 2,) by Newton's method with halved steps; design (n, m + 2), whose last column has no ridge."""
    penalty = np.full(design.shape[1], ridge)
    penalty[-1] = 0.0
    w = np.zeros(design.shape[1]) if start is None else start

    def loss(w: Array) -> float:
        with np.errstate(over="ignore", invalid="ignore"):  # a step too long is halved
            return float((penalty * w * w).sum() / 2 - log_likelihoods(design @ w, squares).sum())

    known = loss(w)
    for _ in range(STEPS):
        ratio = squares * np.exp(-(design @ w))
        gradient = design.T @ (1 - ratio) / 2 + penalty * w
        step = np.linalg.solve((design.T * ratio) @ design / 2 + np.diag(penalty), gradient)
        lengths = 0.5 ** np.arange(HALVINGS)
        length = next((t for t in lengths if loss(w - t * step) <= known), 0.0)
        w = w - length * step
        before, known = known, loss(w)
        if before - known <= CONVERGED * len(squares):
            break
    return w
