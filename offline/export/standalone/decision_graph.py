"""What `Predictor.predict` computes after the network, as ONNX nodes.

Each function adds the nodes of the function with its name in `demur.service.maths.predictive` or
`demur.service.maths.rejection`, whose docstrings have the equations; `decide` does what `Decision.predict` of
`demur.service.inference.decision` does. Change both together:
`tests/offline/export/standalone/test_decision_graph.py` compares them.

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
from demur.service.maths.predictive import PROBIT
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.scores import EPISTEMIC_STD, PREDICTIVE_ENTROPY, SCORES, Scoring

from .nodes import LAST, NodeBuilder
from .score_graph import epistemic_std, score_of

Array = npt.NDArray[Any]


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
