"""Out-of-distribution scores as ONNX nodes: those of `demur.service.maths.scores` and `demur.service.maths.surprise`.

Their docstrings have the equations. Change both together: `tests/offline/export/standalone/test_score_graph.py`
compares them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto
from onnxscript import ir

from demur.service.maths.predictive import noise_ratios
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import EXPONENT, LEAST_SQUARE, MOST_CLASSES, Scoring
from demur.service.maths.surprise import LargestSurprise

from .nodes import LAST, NodeBuilder

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Outputs:
    """What a score may need: mean and variance (B, K) float64, K and the temperature; of a regression the noise, and of
    a classification the probabilities (B, K), the entropy (B,) and its epistemic part; `features`: the feature scores
    (B,) float64 that the graph gives, by name."""

    mean: ir.Value
    variance: ir.Value
    count: int
    temperature: float
    sigma_noise: Array | None = None
    probabilities: ir.Value | None = None
    total: ir.Value | None = None
    epistemic: ir.Value | None = None
    features: Mapping[str, ir.Value] = field(default_factory=dict)


def score_of(add: NodeBuilder, scoring: Scoring, outputs: Outputs) -> ir.Value:
    """The score (B,) float64."""
    if not isinstance(scoring, LargestSurprise):
        return _single(add, scoring.name, outputs)
    parts = [
        _from(add, _surprise(add, _single(add, part.score.name, outputs), part.distribution), part.least)
        for part in scoring.components
    ]
    return add("Max", *parts) if len(parts) > 1 else parts[0]


def _from(add: NodeBuilder, surprise: ir.Value, least: float) -> ir.Value:
    """The surprise where it is at least `least`, otherwise 0."""
    return add("Where", add("Less", surprise, least), 0.0, surprise) if least else surprise


def _single(add: NodeBuilder, name: str, outputs: Outputs) -> ir.Value:
    if name in ("predictive_entropy", "epistemic_entropy"):
        value = outputs.total if name == "predictive_entropy" else outputs.epistemic
        assert value is not None  # of a classification
        return value
    if name in outputs.features:
        return outputs.features[name]
    nodes: dict[str, Callable[[NodeBuilder, Outputs], ir.Value]] = {
        "top_probability": _top_probability,
        "logit_variance": lambda add, outputs: _mean(add, outputs.variance, outputs.count),
        "class_variance": lambda add, outputs: _of_class(add, outputs.variance, outputs),
        "relative_variance": _relative_variance,
        "energy": _energy,
        "generalised_entropy": _generalised_entropy,
        "max_logit": lambda add, outputs: add("Neg", _largest(add, outputs.mean)),
        "epistemic_std": lambda add, outputs: add("Sqrt", _comparable(add, outputs)[1]),
        "predictive_std": _predictive_std,
    }
    return nodes[name](add, outputs)


def _mean(add: NodeBuilder, values: ir.Value, count: int) -> ir.Value:
    """(B, K) -> (B,). In float64 the sum of float32 values is mostly exact, so its order does not matter."""
    return add("Div", add("ReduceSum", values, LAST, keepdims=0), float(count))


def _largest(add: NodeBuilder, values: ir.Value) -> ir.Value:
    return add("ReduceMax", values, LAST, keepdims=0)


def _of_class(add: NodeBuilder, values: ir.Value, outputs: Outputs) -> ir.Value:
    """The value of the most probable class, (B, K) -> (B,)."""
    chosen = add("ArgMax", _probabilities(outputs), axis=-1, keepdims=1)
    return add("Squeeze", add("GatherElements", values, chosen, axis=1), LAST)


def _probabilities(outputs: Outputs) -> ir.Value:
    assert outputs.probabilities is not None  # of a classification
    return outputs.probabilities


def _top_probability(add: NodeBuilder, outputs: Outputs) -> ir.Value:
    return add("Sub", 1.0, _largest(add, _probabilities(outputs)))


def _relative_variance(add: NodeBuilder, outputs: Outputs) -> ir.Value:
    distance = add("Sub", _of_class(add, outputs.mean, outputs), _mean(add, outputs.mean, outputs.count))
    square = add("Max", add("Mul", distance, distance), LEAST_SQUARE)
    return add("Div", _of_class(add, outputs.variance, outputs), square)


def _energy(add: NodeBuilder, outputs: Outputs) -> ir.Value:
    largest = add("ReduceMax", outputs.mean, LAST, keepdims=1)
    shifted = add("Div", add("Sub", outputs.mean, largest), outputs.temperature)
    total = add("ReduceSum", add("Exp", shifted), LAST, keepdims=0)
    return add("Sub", add("Mul", add("Log", total), -outputs.temperature), add("Squeeze", largest, LAST))


def _generalised_entropy(add: NodeBuilder, outputs: Outputs) -> ir.Value:
    p = _probabilities(outputs)
    if outputs.count > MOST_CLASSES:
        p = add.largest(p, MOST_CLASSES)
    return add("ReduceSum", add("Pow", add("Mul", p, add("Sub", 1.0, p)), EXPONENT), LAST, keepdims=0)


def _predictive_std(add: NodeBuilder, outputs: Outputs) -> ir.Value:
    sigma, mean = _comparable(add, outputs)
    return add("Sqrt", add("Add", mean, sigma**2))


def _comparable(add: NodeBuilder, outputs: Outputs) -> tuple[float, ir.Value]:
    """sigma, and the mean of the variances in one unit: `RegressionOutputs.comparable`."""
    assert outputs.sigma_noise is not None  # of a regression
    sigma, ratios = noise_ratios(outputs.sigma_noise)
    return sigma, _mean(add, add("Div", outputs.variance, np.square(ratios)), outputs.count)


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
