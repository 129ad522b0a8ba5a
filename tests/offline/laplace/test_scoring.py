"""The choice of the score."""

from dataclasses import replace

import numpy as np

from demur.offline.data.likelihood import Classification
from demur.offline.laplace.scoring import HeldOutOutputs, largest_surprise
from demur.offline.laplace.scoring import outputs_of as outputs_from
from demur.service.maths.predictive import class_probabilities
from demur.service.maths.score_outputs import ClassOutputs


def outputs_of(scale: float, variance: float, seed: int, count: int = 200) -> ClassOutputs:
    rng = np.random.default_rng(seed)
    mean = (scale * rng.standard_normal((count, 5))).astype(np.float32)
    variances = (variance * rng.random((count, 5))).astype(np.float32)
    return ClassOutputs(mean, variances, class_probabilities(mean, variances, 1.0), 1.0)


def test_by_default_either_of_two_surprises_suffices() -> None:
    rng = np.random.default_rng(0)
    ordinary = replace(outputs_of(6.0, 1.0, 0), features={"distance": rng.exponential(size=200)})
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy", "distance"]
    limit = np.quantile(joined.scored(ordinary)[0], 0.95)
    far = replace(outputs_of(90.0, 0.0, 1), features={"distance": np.full(200, 30.0)})
    unsure = replace(outputs_of(0.1, 1.0, 2), features={"distance": np.zeros(200)})
    for foreign, place in ((far, 1), (unsure, 0)):
        score, leading = joined.scored(foreign)
        assert (score > limit).all()
        assert (leading == place).all()


def test_one_surprise_where_the_other_tells_nothing() -> None:
    ordinary = replace(outputs_of(6.0, 1.0, 0), features={"distance": np.zeros(200)})
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy"]
    same = ClassOutputs(np.zeros((9, 3)), np.ones((9, 3)), np.full((2, 9, 3), 1 / 3), 1.0, {"distance": np.zeros(9)})
    assert largest_surprise(same) is None


def test_examples_without_finite_feature_scores_are_left_out() -> None:
    features = {"distance": np.array([1.0, np.nan, np.inf, 2.0])}
    found = outputs_from(Classification(3), HeldOutOutputs(np.eye(4, 3), np.ones((4, 3)), features))
    assert found is not None
    np.testing.assert_array_equal(found.features["distance"], [1.0, 2.0])
    assert found.mean.shape == (2, 3)
