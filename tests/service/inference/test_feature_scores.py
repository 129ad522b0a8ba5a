"""Feature scores from the graph: the score in use, alone or in a fused one, and what is not finite."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper

from service.bundle import BundleError, CalibrationTensors, FusedPart, read_bundle
from service.inference.predictor import NonFinitePrediction, Predictor, check_finite
from service.maths.fused_score import Component, FusedScore, ScoreDistribution
from service.maths.rejection import RejectionRule
from service.maths.scores import SCORES, FeatureScoreName
from tests import reference
from tests.support.bundles import (
    FEATURE_SPEC,
    Synthetic,
    even_outcomes,
    linear_graph,
    model_bytes,
    rewrite,
    value_info,
    write_linear,
)

Array = npt.NDArray[Any]
NAMES: tuple[FeatureScoreName, ...] = ("mahalanobis", "middle_mahalanobis")


def feature_graph(synthetic: Synthetic) -> onnx.GraphProto:
    """That of the linear network, and the feature scores |x|^2 and log x_0."""
    graph = linear_graph(synthetic.weight, synthetic.bias, synthetic.indices, synthetic.manifest.input.shape)
    constants = {"last": np.array([-1], np.int64), "zero": np.array([0], np.int64)}
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    graph.node.extend(
        [
            helper.make_node("ReduceSumSquare", ["inputs", "last"], ["length"]),
            helper.make_node("Gather", ["inputs", "zero"], ["first"], axis=1),
            helper.make_node("Log", ["first"], ["logarithm"]),
            helper.make_node("Concat", ["length", "logarithm"], ["feature_scores"], axis=1),
        ]
    )
    graph.output.append(value_info("feature_scores", ("batch", 2)))
    return graph


def write_scored(folder: Path, fused: bool) -> tuple[Path, Synthetic]:
    synthetic = write_linear(folder / "linear", outputs=3, spec=FEATURE_SPEC)
    rule, graph = synthetic.manifest.calibration, dataclasses.replace(synthetic.manifest.graph, feature_scores=NAMES)
    scores = np.linspace(0.1, 20.0, rule.examples)
    threshold = RejectionRule(scores, rule.false_reject_rate).threshold
    described = dataclasses.replace(rule, score="mahalanobis", threshold=threshold)
    scoring = None
    if fused:
        distribution = ScoreDistribution(np.array([1.0, 4.0]), np.array([0.0, np.log(10)]), 2.0)
        components = tuple(Component(SCORES[name], 0.5, distribution) for name in ("energy", "mahalanobis"))
        scoring = FusedScore(components)
        parts = tuple(FusedPart(part.score.name, 0.5, 2.0) for part in components)
        described = dataclasses.replace(described, score="fused", fused=parts)
    rewrite(
        synthetic.path,
        folder / "bundle",
        manifest=dataclasses.replace(synthetic.manifest, graph=graph, calibration=described),
        model=model_bytes(feature_graph(synthetic)),
        calibration=CalibrationTensors(scores, even_outcomes(scores, 3), {}, scoring),
    )
    return folder / "bundle", synthetic


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scored(tmp_path_factory.mktemp("single"), fused=False)[0]


def positive(rows: int) -> Array:
    return np.abs(np.random.default_rng(0).normal(size=(rows, *FEATURE_SPEC.shape))).astype(np.float32) + 0.01


def test_the_score_is_that_of_the_graph(single: Path) -> None:
    inputs = positive(100)  # in several chunks
    prediction = Predictor.load(single, jacobian_bytes=2000).predict(inputs)
    expected = np.square(inputs.astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(prediction.score, expected, rtol=1e-6)
    assert prediction.score.dtype == np.float64
    assert 0 < prediction.rejected.sum() < len(inputs) or (prediction.score < 20).all()
    alone = Predictor.load(single).predict(inputs[:1])
    np.testing.assert_allclose(alone.score, prediction.score[:1], rtol=1e-6)


def test_a_fused_score_takes_them(tmp_path: Path) -> None:
    path, synthetic = write_scored(tmp_path, fused=True)
    inputs = positive(8)
    found = Predictor.load(path).predict(inputs)
    means, variances = synthetic.mean(inputs), synthetic.variance(inputs)
    for x, f, v, score in zip(inputs.astype(float), means, variances, found.score, strict=True):
        singles = reference.class_scores(f, v, 1.0)["energy"], float(x @ x)
        parts = [reference.surprise(s, [1.0, 4.0], [0.0, 0.9], 2.0) for s in singles]
        assert score == pytest.approx(sum(parts) / 2, rel=1e-5)
    assert found.leading is not None


def test_a_score_that_is_not_finite_is_rejected(single: Path, tmp_path: Path) -> None:
    bundle = read_bundle(single)
    calibration = dataclasses.replace(bundle.manifest.calibration, score="middle_mahalanobis")
    tensors = dataclasses.replace(bundle.calibration, scoring=None)
    manifest = dataclasses.replace(bundle.manifest, calibration=calibration)
    rewrite(single, tmp_path / "bundle", manifest=manifest, calibration=tensors)
    inputs = positive(3)
    inputs[1, 0] = -1.0  # has no logarithm
    prediction = Predictor.load(tmp_path / "bundle").predict(inputs)
    assert prediction.finite.tolist() == [True, False, True]
    assert prediction.rejected[1]
    assert np.isinf(prediction.score[1])
    with pytest.raises(NonFinitePrediction):
        check_finite(prediction)


def test_the_plain_network_does_without(single: Path) -> None:
    predictor = Predictor.load(single, plain_too=True)
    inputs = positive(2)
    np.testing.assert_array_equal(predictor.mean(inputs), predictor.outputs(inputs).mean)


def test_a_graph_that_gives_others_than_declared(single: Path, tmp_path: Path) -> None:
    bundle = read_bundle(single)
    manifest, tensors = bundle.manifest, dataclasses.replace(bundle.calibration, scoring=None)
    fewer: tuple[FeatureScoreName, ...] = ("mahalanobis",)
    for names in (fewer, None):
        graph = dataclasses.replace(manifest.graph, feature_scores=names)
        score = dataclasses.replace(manifest.calibration, score="energy")
        other = dataclasses.replace(manifest, graph=graph, calibration=score)
        rewrite(single, tmp_path / str(names), manifest=other, calibration=tensors)
        with pytest.raises(BundleError, match="found the graph signature"):
            Predictor.load(tmp_path / str(names))
