"""Synthetic bundles with added weights: the linear network of `tests.support.bundles`, of flat inputs, and beside it

added_variance = |x|^2 / 4,    distance = sqrt(x_0), a NaN where x_0 is negative,

and, where the noise depends on the input, noise_scale = 1 + |x_1|, of every output.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from demur.service.bundle import (
    AddedWeights,
    CalibrationTensors,
    InputNoise,
    Manifest,
)
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.scores import FeatureScoreName, Scoring
from tests.support.bundles import (
    FEATURE_SPEC,
    Array,
    Synthetic,
    even_outcomes,
    graph_of,
    model_bytes,
    rewrite,
    value_info,
    write_linear,
)

ADDED = AddedWeights(
    layers=("body.3", "head"),
    distance_layers=("", "body.1", "head"),
    features=256,
    prior_variance=2.5,
    budget=0.005,
    cost=0.003,
    cost_error=0.0015,
    explanation="uncertainty costs 0.003 nats",
)
NOISE = InputNoise(least=1.0, most=6.0, gain=0.1, gain_error=0.02)
SCORES: Array = np.linspace(0.1, 2.0, 40)


def with_added_weights(manifest: Manifest, **changes: Any) -> Manifest:
    """The manifest, for a graph that gives what added weights give."""
    link: dict[str, Any] = {"link": "probit-shared"} if manifest.task == "classification" else {}
    graph = dataclasses.replace(manifest.graph, feature_scores=("distance",))
    return dataclasses.replace(manifest, **{"graph": graph, "added_weights": ADDED, **link, **changes})


def added_variance(inputs: Array) -> Array:
    """(B,) float64."""
    total: Array = np.square(np.asarray(inputs, np.float64)).sum(axis=1) / 4
    return total


def noise_scale(inputs: Array, outputs: int = 3) -> Array:
    """(B, K) float64."""
    found: Array = np.repeat(1 + np.abs(np.asarray(inputs, np.float64)[:, 1:2]), outputs, axis=1)
    return found


def added_graph(synthetic: Synthetic, *, by_input: bool = False, mistakes: bool = False) -> onnx.GraphProto:
    """mean, variance, added_variance and feature_scores, and with `by_input` noise_scale; with `mistakes` the second
    column of the inputs is a feature score, too."""
    graph = graph_of(synthetic)
    graph.node[-1].output[0] = "subnetwork"
    constants: dict[str, Array] = {
        "zero": np.array([0], np.int64),
        "last": np.array([-1], np.int64),
        "quarter": np.array(0.25, np.float32),
    }
    nodes = [
        helper.make_node("ReduceSumSquare", ["inputs", "last"], ["length"], keepdims=0),
        helper.make_node("Mul", ["length", "quarter"], ["added_variance"]),
        helper.make_node("Gather", ["inputs", "zero"], ["first"], axis=1),
        helper.make_node("Sqrt", ["first"], ["distance" if mistakes else "feature_scores"]),
        helper.make_node("Unsqueeze", ["added_variance", "last"], ["column"]),
        helper.make_node("Add", ["subnetwork", "column"], ["variance"]),
    ]
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    graph.node.extend(nodes)
    graph.output.extend(
        [value_info("added_variance", ("batch",)), value_info("feature_scores", ("batch", 1 + mistakes))]
    )
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "second"))
    if mistakes:
        graph.node.append(helper.make_node("Gather", ["inputs", "second"], ["likeness"], axis=1))
        graph.node.append(helper.make_node("Concat", ["distance", "likeness"], ["feature_scores"], axis=1))
    if by_input:
        graph.initializer.append(numpy_helper.from_array(np.ones((1, 3), np.float32), "ones"))
        graph.node.append(helper.make_node("Gather", ["inputs", "second"], ["column_1"], axis=1))
        graph.node.append(helper.make_node("Abs", ["column_1"], ["size_1"]))
        graph.node.append(helper.make_node("Add", ["size_1", "ones"], ["noise_scale"]))
        graph.output.append(value_info("noise_scale", ("batch", 3)))
    return graph


def write_added(
    folder: Path,
    *,
    regression: bool = False,
    by_input: bool = False,
    mistakes: bool = False,
    scoring: Scoring | None = None,
    calibration: dict[str, Any] | None = None,
    **changes: Any,
) -> Synthetic:
    """Write the bundle to `folder` / "bundle"; `calibration`: changes to the entry of that name; by_input: of a
    regression, its noise depends on the input; mistakes: "inverted" is told."""
    synthetic = write_linear(folder / "linear", outputs=3, spec=FEATURE_SPEC, regression=regression)
    scores: tuple[FeatureScoreName, ...] = ("distance", "inverted") if mistakes else ("distance",)
    graph = dataclasses.replace(synthetic.manifest.graph, feature_scores=scores)
    described = synthetic.manifest.calibration
    threshold = RejectionRule(SCORES, described.false_reject_rate).threshold
    described = dataclasses.replace(described, threshold=threshold, **(calibration or {}))
    temperatures = {} if regression else {"temperature": 0.5, "map_temperature": 1.5}
    added = dataclasses.replace(ADDED, noise=NOISE if by_input else None)
    given = {"graph": graph, "calibration": described, "added_weights": added, **temperatures, **changes}
    manifest = with_added_weights(synthetic.manifest, **given)
    rewrite(
        synthetic.path,
        folder / "bundle",
        manifest=manifest,
        model=model_bytes(added_graph(synthetic, by_input=by_input, mistakes=mistakes)),
        calibration=CalibrationTensors(SCORES, even_outcomes(SCORES, 3, regression), scoring),
    )
    return dataclasses.replace(synthetic, path=folder / "bundle", manifest=manifest)
