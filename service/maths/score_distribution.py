"""How surprising a value of a score is, by its distribution on held-out data. Pure NumPy, float64.

    u(s) = -log(1 - F(s))

F is the empirical distribution up to its 0.9 quantile a, known at no more than 200 levels, and a generalised Pareto one
beyond (Pickands, 1975):

    1 - F(s) = 0.1 (1 + xi (s - a) / sigma)^(-1 / xi),   of shape xi = 0:  0.1 exp(-(s - a) / sigma).

So u stays finite and continuous, and goes on growing beyond the largest score seen. Shape and scale are those of the
probability-weighted moments of the excesses over a (Hosking and Wallis, 1987), the shape kept within [0, 0.9]: from 1
on the mean is not finite, and below 0 the distribution ends. The scale then keeps the mean excess, sigma = m (1 - xi).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LEVELS, KNOTS, MOST_LEVELS = 200, 50, 256
TAIL_LEVEL = 0.9
MOST_SHAPE = 0.9
STEPS = 2**14  # that a score's leading binary digit has
LEAST_SHAPE = 1e-6  # less is none
LEAST_SCALE = 1e-200  # with less, (s - a) / sigma could overflow for what finite outputs in float32 give


@dataclass(frozen=True)
class ScoreDistribution:
    """u of one score. values (m,) strictly ascending, the last one is a; surprise (m,) = u there, ascending, the last
    one log(10), or where it is `compressed` beyond; scale sigma >= `LEAST_SCALE` and shape xi in [0, 1) of the tail."""

    values: Array
    surprise: Array
    scale: float
    shape: float = 0.0

    @classmethod
    def of(cls, scores: Array) -> "ScoreDistribution | None":
        """The distribution of `scores` (n,); None where they tell nothing: constant above, or not finite."""
        if not len(scores) or not np.isfinite(scores).all():
            return None
        levels = np.linspace(0, TAIL_LEVEL, min(LEVELS, max(2, len(scores))))
        scores = rounded_up(np.asarray(scores, np.float64))
        quantiles = np.quantile(scores, levels)
        last_of_ties = np.append(quantiles[1:] > quantiles[:-1], True)
        values, start = quantiles[last_of_ties], float(quantiles[-1])
        excesses = np.sort(scores[scores > start] - start)
        scale, shape = pareto(excesses) if len(excesses) else (0.0, 0.0)
        return cls(values, -np.log1p(-levels[last_of_ties]), scale, shape) if scale >= LEAST_SCALE else None

    def compressed(self, beyond: float) -> "ScoreDistribution":
        """The same up to this surprise, at least log(10), and with the heaviest tail above: in the order that it had.

        A light tail of a few scores grows so fast that one odd score surprises more than anything else can.
        """
        knots = np.linspace(self.surprise[-1], beyond, KNOTS)[1:]
        values = np.append(self.values, [self.value_at(u) for u in knots])
        if (np.diff(values) <= 0).any():  # scores so close together that floating-point numbers end
            return self
        scale = self.scale * math.exp(self.shape * (beyond - self.surprise[-1]))  # with which u goes on as steeply
        return ScoreDistribution(values, np.append(self.surprise, knots), scale, MOST_SHAPE)

    @property
    def start(self) -> float:
        """a, where the tail begins."""
        return float(self.values[-1])

    def surprise_at(self, scores: Array) -> Array:
        """u (B,) of scores (B,)."""
        found: Array = np.interp(scores, self.values, self.surprise)
        excess = np.maximum(scores - self.start, 0.0) / self.scale
        return found + (np.log1p(self.shape * excess) / self.shape if self.shape else excess)

    def value_at(self, surprise: float) -> float:
        """The score of this surprise, which is at least that of the smallest value."""
        tail = surprise - float(self.surprise[-1])
        if tail < 0:
            return float(np.interp(surprise, self.surprise, self.values))
        return self.start + self.scale * (math.expm1(self.shape * tail) / self.shape if self.shape else tail)


def rounded_up(scores: Array) -> Array:
    """Each score (n,) raised by one to two steps, of 2^-14 of the power of two above it; 0 stays.

    So scores that differ by rounding alone, as those of inputs that repeat, are one value: between them, u would be the
    steeper the smaller their errors are.
    """
    mantissa, exponent = np.frexp(scores)
    return np.where(scores == 0, 0.0, np.ldexp((np.floor(STEPS * mantissa) + 2) / STEPS, exponent))


def pareto(excesses: Array) -> tuple[float, float]:
    """sigma and xi of excesses (n,) > 0, ascending: with a_0 their mean and a_1 = sum_i (n - i) / (n - 1) x_i / n,

    xi = 2 - a_0 / (a_0 - 2 a_1), within [0, 0.9].
    """
    n, mean = len(excesses), float(excesses.mean())
    first = float((np.arange(n - 1, -1, -1) / max(1, n - 1) * excesses).mean())
    shape = 2 - mean / (mean - 2 * first) if n > 1 and mean > 2 * first else 0.0
    shape = min(max(shape, 0.0), MOST_SHAPE) if math.isfinite(shape) else 0.0
    shape = shape if shape >= LEAST_SHAPE else 0.0
    return mean * (1 - shape), shape
