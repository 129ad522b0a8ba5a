"""Out-of-distribution scores as ONNX nodes: those of `demur.service.maths.scores` and `demur.service.maths.surprise`.

Their docstrings have the equations. Change both together: `tests/offline/export/standalone/test_score_graph.py`
compares them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto
from onnxscript import ir

from demur.service.maths.predictive import noise_ratios
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import Scoring
from demur.service.maths.surprise import LEAST_ROOM, LargestSurprise

from .nodes import LAST, NodeBuilder

Array = npt.NDArray[Any]


def score_of(add: NodeBuilder, scoring: Scoring, singles: Mapping[str, ir.Value]) -> ir.Value:
    """The score (B,) float64; singles: the single scores that it needs, by name."""
    if not isinstance(scoring, LargestSurprise):
        return singles[scoring.name]
    parts = [
        _from(add, _surprise(add, _as_odds(add, singles[part.score.name], part.end), part.distribution), part.least)
        for part in scoring.components
    ]
    return add("Max", *parts) if len(parts) > 1 else parts[0]


def epistemic_std(add: NodeBuilder, variance: ir.Value, sigma_noise: Array) -> ir.Value:
    """(B, K) -> (B,). In float64 the sum of float32 values is mostly exact, so its order does not matter."""
    comparable = add("Div", variance, np.square(noise_ratios(sigma_noise)[1]))
    total = add("ReduceSum", comparable, LAST, keepdims=0)
    return add("Sqrt", add("Div", total, float(len(sigma_noise))))


def _from(add: NodeBuilder, surprise: ir.Value, least: float) -> ir.Value:
    """The surprise where it is at least `least`, otherwise 0."""
    return add("Where", add("Less", surprise, least), 0.0, surprise) if least else surprise


def _as_odds(add: NodeBuilder, score: ir.Value, end: float | None) -> ir.Value:
    if end is None:
        return score
    return add("Div", score, add("Max", add("Sub", end, score), LEAST_ROOM * end))


def _surprise(add: NodeBuilder, score: ir.Value, distribution: ScoreDistribution) -> ir.Value:
    """`ScoreDistribution.surprise_at`: (B,) -> (B,)."""
    tail = add("Div", add("Max", add("Sub", score, distribution.start), 0.0), distribution.scale)
    if distribution.shape:
        tail = add("Div", _log1p(add, add("Mul", tail, distribution.shape)), distribution.shape)
    return add("Add", _interpolated(add, score, distribution), tail)


def _log1p(add: NodeBuilder, x: ir.Value) -> ir.Value:
    """log(1 + x) of x >= 0, as x log(w) / (w - 1) with w = 1 + x rounded (Kahan): exact where x is small too."""
    rounded = add("Add", x, 1.0)
    above = add("Sub", rounded, 1.0)
    none = add("Equal", above, 0.0)
    return add("Where", none, x, add("Div", add("Mul", x, add("Log", rounded)), add("Where", none, 1.0, above)))


def _interpolated(add: NodeBuilder, score: ir.Value, distribution: ScoreDistribution) -> ir.Value:
    """numpy.interp: linear between the values, constant beyond the first and the last one."""
    x, y = distribution.values, distribution.surprise
    if len(x) == 1:
        return add("Min", add("Max", score, float(y[0])), float(y[0]))
    reached = add("LessOrEqual", np.asarray(x[:-1], np.float64), add("Unsqueeze", score, LAST))
    count = add("ReduceSum", add.cast(reached, TensorProto.INT64), LAST, keepdims=0)
    place = add("Max", add("Sub", count, np.array(1, np.int64)), np.array(0, np.int64))
    left, bottom = add("Gather", x[:-1], place), add("Gather", y[:-1], place)
    slope = add("Gather", np.diff(y) / np.diff(x), place)
    inside = add("Add", add("Mul", slope, add("Sub", score, left)), bottom)
    return add("Min", add("Max", inside, float(y[0])), float(y[-1]))
