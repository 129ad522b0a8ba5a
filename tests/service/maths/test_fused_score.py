"""The fused score against the oracle, and what must hold for any scores."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.maths.fused_score import MOST_LEVELS, TAIL_LEVEL, Component, FusedScore, ScoreDistribution, surprises
from service.maths.predictive import class_probabilities
from service.maths.rejection import RejectionRule
from service.maths.score_outputs import ClassOutputs
from service.maths.scores import CLASSIFICATION_SCORES
from tests import reference

Array = npt.NDArray[Any]
NAMES = ("energy", "logit_variance", "predictive_entropy")


def distribution_of(scores: Array) -> ScoreDistribution:
    found = ScoreDistribution.of(scores)
    assert found is not None
    return found


def drawn(count: int, seed: int = 0) -> ClassOutputs:
    rng = np.random.default_rng(seed)
    mean = (3 * rng.standard_normal((count, 4))).astype(np.float32)
    variance = (2 * rng.random((count, 4)) ** 2).astype(np.float32)
    return ClassOutputs(mean, variance, class_probabilities(mean, variance, 1.0), 1.0)


def fused_of(outputs: ClassOutputs, weights: tuple[float, ...] = (0.5, 0.3, 0.2)) -> FusedScore:
    scores = [CLASSIFICATION_SCORES[name] for name in NAMES]
    return FusedScore(
        tuple(
            Component(score, weight, distribution_of(score.scored(outputs)[0]))
            for score, weight in zip(scores, weights, strict=True)
        )
    )


@pytest.mark.parametrize("count", [5, 60, 1000])
def test_surprise(count: int) -> None:
    scores = np.random.default_rng(count).gamma(2.0, size=count)
    levels = np.linspace(0, TAIL_LEVEL, min(count, MOST_LEVELS))
    values = np.quantile(scores, levels)
    excess = float(np.mean([s - values[-1] for s in scores if s > values[-1]]))
    asked = np.concatenate([scores, values, [-1.0, 20.0]])
    expected = [reference.surprise(s, values.tolist(), levels.tolist(), excess) for s in asked.tolist()]
    np.testing.assert_allclose(distribution_of(scores).surprise_at(asked), expected, rtol=1e-9)


def test_surprise_is_exponential_for_the_data_themselves() -> None:
    scores = np.random.default_rng(0).standard_normal(20_000)
    assert distribution_of(scores).surprise_at(scores).mean() == pytest.approx(1.0, abs=0.03)  # that of Exp(1)


@given(hnp.arrays(np.float64, st.integers(2, 40), elements=st.floats(-1e6, 1e6)))
def test_order_is_kept(scores: Array) -> None:
    found = ScoreDistribution.of(scores)
    if found is None:
        return
    asked = np.sort(np.concatenate([scores, found.values]))
    surprise = found.surprise_at(asked)
    assert np.isfinite(surprise).all()
    assert (np.diff(surprise) >= 0).all()
    assert (np.diff(found.values) > 0).all()
    assert found.surprise[-1] == pytest.approx(math.log(10))


def test_grows_beyond_the_largest_score() -> None:
    scores = np.arange(100.0)
    beyond = distribution_of(scores).surprise_at(np.array([99.0, 100.0, 1e3, 1e12, 1e60]))
    assert np.isfinite(beyond).all()
    assert (np.diff(beyond) > 0).all()


@pytest.mark.parametrize(
    "scores", [np.zeros(0), np.ones(50), np.array([1.0, np.nan]), np.r_[np.zeros(30), np.ones(30)]]
)
def test_scores_that_tell_nothing(scores: Array) -> None:
    assert ScoreDistribution.of(scores) is None


def test_a_weighted_sum_and_its_largest_part() -> None:
    fused, outputs = fused_of(drawn(300)), drawn(20, seed=1)
    found, leading = fused.scored(outputs)
    distributions = {str(part.score.name): part.distribution for part in fused.components}
    parts = surprises(outputs, distributions) * [0.5, 0.3, 0.2]
    np.testing.assert_allclose(found, parts.sum(axis=1))
    np.testing.assert_array_equal(leading, parts.argmax(axis=1))
    assert len(set(leading.tolist())) > 1


def test_p_values_are_valid_for_dependent_scores() -> None:
    """The share of new examples rejected at 10 %, over many calibration sets, is at most 10 % (within chance)."""
    fused = fused_of(drawn(200, seed=5))
    shares = []
    for seed in range(10, 110):
        rule = RejectionRule(np.sort(fused.scored(drawn(99, seed))[0]), 0.1)
        shares.append(rule.rejected(fused.scored(drawn(200, seed + 1000))[0]).mean())
    assert np.mean(shares) == pytest.approx(0.1, abs=0.015)
