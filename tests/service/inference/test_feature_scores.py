"""The distance from the graph: the score in use, alone or in the largest surprise, and what is not finite."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from demur.service.bundle import BundleError, ScorePart, read_bundle
from demur.service.codec.answers import score_names
from demur.service.inference.predictor import NonFinitePrediction, Predictor, check_finite
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import SCORES
from demur.service.maths.surprise import Component, LargestSurprise
from tests import reference
from tests.support.added import write_added
from tests.support.bundles import FEATURE_SPEC, Synthetic, in_chunks, rewrite

Array = npt.NDArray[Any]
DISTRIBUTION = ScoreDistribution(np.array([0.2, 1.0]), np.array([0.0, np.log(10)]), 2.0, 0.5)
LEAST = math.log(20)


def write_surprise(folder: Path) -> Synthetic:
    names = ("predictive_entropy", "distance")
    pairs = [(SCORES[name], least) for name, least in zip(names, (0.0, LEAST), strict=True)]
    scoring = LargestSurprise(tuple(Component(score, DISTRIBUTION, least) for score, least in pairs))
    parts = tuple(ScorePart(score.name, 2.0, 0.5, least) for score, least in pairs)
    return write_added(folder, scoring=scoring, calibration={"score": "surprise", "parts": parts})


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_added(tmp_path_factory.mktemp("single"), calibration={"score": "distance"}).path


def positive(rows: int) -> Array:
    return np.abs(np.random.default_rng(0).normal(size=(rows, *FEATURE_SPEC.shape))).astype(np.float32) + 0.01


def test_the_score_is_that_of_the_graph(single: Path, tmp_path: Path) -> None:
    inputs = positive(100)  # in several chunks
    prediction = Predictor.load(in_chunks(single, tmp_path / "bundle", 30)).predict(inputs)
    np.testing.assert_allclose(prediction.score, np.sqrt(inputs[:, 0]), rtol=1e-6)
    assert prediction.score.dtype == np.float64
    alone = Predictor.load(single).predict(inputs[:1])
    np.testing.assert_allclose(alone.score, prediction.score[:1], rtol=1e-6)


def test_the_largest_surprise_takes_it(tmp_path: Path) -> None:
    path = write_surprise(tmp_path).path
    inputs = positive(8)
    inputs[:4, 0] *= 1e4
    predictor = Predictor.load(path)
    assert isinstance(predictor.decision.predictive.score, LargestSurprise)
    found = predictor.predict(inputs)
    assert found.probabilities is not None
    assert found.leading is not None
    for x, p, score, place in zip(inputs, found.probabilities, found.score, found.leading, strict=True):
        singles = reference.entropy(p), float(np.sqrt(x[0]))
        surprises = [reference.surprise(s, [0.2, 1.0], [0.0, 0.9], 2.0, 0.5) for s in singles]
        assert score == pytest.approx(reference.largest_surprise(surprises, [0.0, LEAST]), rel=1e-5)
        assert place == (surprises[1] > max(surprises[0], LEAST))
    assert set(found.leading.tolist()) == {0, 1}


def test_an_answer_names_the_surprise(tmp_path: Path) -> None:
    predictor = Predictor.load(write_surprise(tmp_path).path)
    inputs = positive(2)
    inputs[1, 0] = 1e6
    assert score_names(predictor.predict(inputs), predictor.decision.predictive.score) == [
        "surprise (by its predictive entropy)",
        "surprise (by its distance from the training data)",
    ]


def test_a_score_that_is_not_finite_is_rejected(single: Path) -> None:
    inputs = positive(3)
    inputs[1, 0] = -1.0  # has no root
    prediction = Predictor.load(single).predict(inputs)
    assert prediction.finite.tolist() == [True, False, True]
    assert prediction.rejected[1]
    assert np.isinf(prediction.score[1])
    with pytest.raises(NonFinitePrediction):
        check_finite(prediction)


def test_a_graph_that_gives_others_than_declared(single: Path, tmp_path: Path) -> None:
    bundle = read_bundle(single)
    graph = dataclasses.replace(bundle.manifest.graph, feature_scores=None)
    score = dataclasses.replace(bundle.manifest.calibration, score="predictive_entropy")
    manifest = dataclasses.replace(bundle.manifest, graph=graph, calibration=score)
    tensors = dataclasses.replace(bundle.calibration, scoring=None)
    rewrite(single, tmp_path / "other", manifest=manifest, calibration=tensors)
    with pytest.raises(BundleError, match="found the graph signature"):
        Predictor.load(tmp_path / "other")
