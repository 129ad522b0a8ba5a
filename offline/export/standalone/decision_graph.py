"""What `Predictor.predict` computes after the network, as ONNX nodes.

Each function adds the nodes of the function with its name in `demur.service.maths` (`predictive`, `rejection`,
`scores`, `surprise`), whose docstrings have the equations; `decide` does what `Decision.predict` of
`demur.service.inference.decision` does. Change both together: `tests/offline/export/standalone` compares them.

Probabilities, scores and p-values are float64 as in the service: rounded to float32, a score could fall on the other
side of a calibration score.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto
from onnxscript import ir

from demur.service.bundle import Manifest
from demur.service.maths.predictive import PROBIT, noise_ratios
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import EPISTEMIC_STD, PREDICTIVE_ENTROPY, SCORES, Scoring
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


def decide(
    add: NodeBuilder,
    mean: ir.Value,
    variance: ir.Value,
    manifest: Manifest,
    rule: RejectionRule,
    scoring: Scoring | None = None,
    features: ir.Value | None = None,
    added_variance: ir.Value | None = None,
    noise_scale: ir.Value | None = None,
) -> dict[str, ir.Value]:
    """Every field of `Prediction` behind mean and variance, (B, K) float32 both, in the order of its fields there.

    scoring: what makes the score; None: the single score that the manifest names. features: the feature scores (B, M)
    float32 that the manifest lists. added_variance: the part (B,) of the variance that added weights have, float32.
    noise_scale (B, K) float32: of a noise that depends on the input.
    """
    scoring = scoring or SCORES[manifest.calibration.score]
    columns = {} if features is None else feature_columns(add, features, manifest.feature_scores)
    scale = None if noise_scale is None else add.float64(noise_scale)
    found = undecided_prediction(add, add.float64(mean), add.float64(variance), columns, manifest, scoring, scale)
    score = found.pop("score")
    scales = {} if noise_scale is None else {"noise_scale": noise_scale}
    finite = add("And", all_finite(add, mean, variance, *scales.values()), is_finite(add, score))
    score = add("Where", finite, score, math.inf)
    rejected = add("Or", add("Greater", score, rule.threshold), add("Not", finite))
    decision = {"score": score, "p_value": p_value(add, score, rule.scores), "rejected": rejected}
    added = {} if added_variance is None else {"added_variance": added_variance}
    return {"mean": mean, "variance": variance, **decision, **found, **added, **scales}


def feature_columns(add: NodeBuilder, features: ir.Value, names: Sequence[str]) -> dict[str, ir.Value]:
    """(B, M) float32 -> (B,) float64 each, by name."""
    wide = add.float64(features)
    return {name: add("Gather", wide, np.array(place, np.int64), axis=1) for place, name in enumerate(names)}


def is_finite(add: NodeBuilder, score: ir.Value) -> ir.Value:
    """(B,) float64 -> (B,) bool. A NaN is not at most the largest number."""
    return add("LessOrEqual", add("Abs", score), float(np.finfo(np.float64).max))


def all_finite(add: NodeBuilder, *outputs: ir.Value) -> ir.Value:
    """`finite_rows`: (B, K) float32 each -> (B,) bool. A NaN is not at most the largest number."""
    largest = np.float32(np.finfo(np.float32).max)
    each = (add("LessOrEqual", add("Abs", values), largest) for values in outputs)
    usable = functools.reduce(lambda one, other: add("And", one, other), each)
    return add.cast(add("ReduceMin", add.cast(usable, TensorProto.INT32), LAST, keepdims=0), TensorProto.BOOL)


def undecided_prediction(
    add: NodeBuilder,
    mean: ir.Value,
    variance: ir.Value,
    features: Mapping[str, ir.Value],
    manifest: Manifest,
    scoring: Scoring,
    noise_scale: ir.Value | None = None,
) -> dict[str, ir.Value]:
    """The fields that are computed from mean and variance alone, (B, K) float64 both, and the score."""
    if manifest.noises is not None:
        noises = np.array(manifest.noises)
        if scoring == EPISTEMIC_STD:
            features = {EPISTEMIC_STD.name: epistemic_std(add, variance, noises)}
        return {"score": score_of(add, scoring, features), "std": predictive_std(add, variance, noises, noise_scale)}
    probabilities = link_approx(add, mean, variance, manifest)
    scaled, several = add("Div", mean, manifest.map_temperature), manifest.link == "probit-sigmoid"
    map_probabilities = sigmoid(add, scaled) if several else softmax(add, scaled)
    entropy_of = label_entropy if several else entropy
    total, aleatoric, epistemic = entropy_parts(add, probabilities, map_probabilities, entropy_of)
    return {
        "score": score_of(add, scoring, {**features, PREDICTIVE_ENTROPY.name: total}),
        "probabilities": probabilities,
        "map_probabilities": map_probabilities,
        "total": total,
        "aleatoric": aleatoric,
        "epistemic": epistemic,
    }


def softmax(add: NodeBuilder, logits: ir.Value) -> ir.Value:
    """(B, K) -> (B, K)."""
    return add("Softmax", logits, axis=-1)


def link_approx(add: NodeBuilder, mean: ir.Value, variance: ir.Value, manifest: Manifest) -> ir.Value:
    """Mean and variance (B, K) -> (B, K)."""
    spread = add("Mul", variance, PROBIT)
    if manifest.link == "probit-shared":
        spread = add("Div", add("ReduceSum", spread, LAST, keepdims=1), float(manifest.outputs))
    spread = add("Sqrt", add("Add", spread, manifest.temperature**2))
    scaled = add("Div", mean, spread)
    return sigmoid(add, scaled) if manifest.link == "probit-sigmoid" else softmax(add, scaled)


def sigmoid(add: NodeBuilder, logits: ir.Value) -> ir.Value:
    """(B, K) -> (B, K). exp(-f) is infinite for a large -f, and 1 over that is 0."""
    return add("Div", 1.0, add("Add", add("Exp", add("Neg", logits)), 1.0))


def label_entropy(add: NodeBuilder, probabilities: ir.Value) -> ir.Value:
    """(B, K) -> (B,)."""
    return add("Add", entropy(add, probabilities), entropy(add, add("Sub", 1.0, probabilities)))


def entropy(add: NodeBuilder, probabilities: ir.Value) -> ir.Value:
    """(B, K) -> (B,). The logarithm of 0 is infinite, and 0 times that NaN, which is not selected."""
    terms = add("Mul", probabilities, add("Log", probabilities))
    selected = add("Where", add("Greater", probabilities, 0.0), terms, 0.0)
    return add("Max", add("Neg", add("ReduceSum", selected, LAST, keepdims=0)), 0.0)


def entropy_parts(
    add: NodeBuilder,
    probabilities: ir.Value,
    map_probabilities: ir.Value,
    entropy_of: Callable[[NodeBuilder, ir.Value], ir.Value] = entropy,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Total, aleatoric and epistemic: (B, K), (B, K) -> (B,) each."""
    total = entropy_of(add, probabilities)
    aleatoric = add("Min", entropy_of(add, map_probabilities), total)
    return total, aleatoric, add("Sub", total, aleatoric)


def predictive_std(
    add: NodeBuilder, variance: ir.Value, sigma_noise: Array, noise_scale: ir.Value | None = None
) -> ir.Value:
    """(B, K) -> (B, K); sigma_noise (K,), noise_scale (B, K)."""
    noise = np.square(sigma_noise)
    scaled = noise if noise_scale is None else add("Mul", add("Mul", noise_scale, noise_scale), noise)
    return add("Sqrt", add("Add", variance, scaled))


def p_value(add: NodeBuilder, score: ir.Value, calibration_scores: Array) -> ir.Value:
    """(B,) -> (B,). Compares each score with all n calibration scores: 5 n bytes an example while it runs."""
    reached = add("LessOrEqual", add("Unsqueeze", score, LAST), np.asarray(calibration_scores, np.float64))
    at_least = add("ReduceSum", add.cast(reached, TensorProto.INT32), LAST, keepdims=0)
    return add("Div", add("Add", add.float64(at_least), 1.0), float(len(calibration_scores) + 1))
