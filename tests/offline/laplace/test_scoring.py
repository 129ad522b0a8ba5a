"""The choice of the score."""

import math

import numpy as np
import pytest

from demur.offline.data.likelihood import Classification
from demur.offline.laplace.scoring import HeldOutOutputs, largest_surprise, singles_of
from demur.offline.runtime.arrays import Array
from demur.service.maths.score_distribution import ScoreDistribution


def drawn(scale: float, variance: float, seed: int, distance: Array, count: int = 200) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    mean, variances = scale * rng.standard_normal((count, 5)), variance * rng.random((count, 5))
    return singles_of(Classification(5), HeldOutOutputs(mean, variances, {"distance": distance}))


def test_by_default_either_of_two_surprises_suffices() -> None:
    rng = np.random.default_rng(0)
    ordinary = drawn(6.0, 1.0, 0, rng.exponential(size=200))
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy", "distance"]
    limit = np.quantile(joined.scored(ordinary)[0], 0.95)
    far = drawn(90.0, 0.0, 1, np.full(200, 30.0))
    unsure = drawn(0.1, 1.0, 2, np.zeros(200))
    for foreign, place in ((far, 1), (unsure, 0)):
        score, leading = joined.scored(foreign)
        assert (score > limit).all()
        assert (leading == place).all()


def test_one_surprise_where_the_other_tells_nothing() -> None:
    ordinary = drawn(6.0, 1.0, 0, np.zeros(200))
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy"]
    assert largest_surprise({"predictive_entropy": np.full(9, np.log(3)), "distance": np.zeros(9)}) is None


def test_mistakes_take_a_third_of_the_false_rejects_together() -> None:
    """By the definition, of a score in the tail: -log(1 - F) + log(q / M), beside -log(1 - F) + log(1 - q)."""
    rng, names = np.random.default_rng(0), ("inverted", "solarised")
    ordinary = drawn(6.0, 1.0, 0, rng.exponential(size=200)) | {name: rng.exponential(size=200) for name in names}
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy", "distance", *names]
    far = {name: np.repeat(values.min(), 1) for name, values in ordinary.items()} | {"solarised": np.array([20.0])}
    score, leading = joined.scored(far)
    alone = ScoreDistribution.of(ordinary["solarised"])
    assert alone is not None
    assert leading.tolist() == [3]
    assert score[0] == pytest.approx(alone.surprise_at(far["solarised"])[0] + math.log(1 / 3 / 2) - math.log(2 / 3))
    below = far | {"solarised": np.quantile(ordinary["solarised"], [0.985])}  # less than 99 %
    assert joined.scored(below)[1].tolist() == [0]


def test_examples_without_finite_feature_scores_are_left_out() -> None:
    features = {"distance": np.array([1.0, np.nan, np.inf, 2.0])}
    found = singles_of(Classification(3), HeldOutOutputs(np.eye(4, 3), np.ones((4, 3)), features))
    np.testing.assert_array_equal(found["distance"], [1.0, 2.0])
    assert found["predictive_entropy"].shape == (2,)


def test_no_row_that_is_finite_tells_nothing() -> None:
    features = {"distance": np.full(4, np.nan)}
    found = singles_of(Classification(3), HeldOutOutputs(np.eye(4, 3), np.full((4, 3), 1e300), features))
    assert {name: len(scores) for name, scores in found.items()} == {"predictive_entropy": 0, "distance": 0}
    assert largest_surprise(found) is None
