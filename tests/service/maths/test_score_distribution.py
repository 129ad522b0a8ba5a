"""How surprising a value of a score is: against the oracle, and what must hold for any scores."""

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from demur.service.maths.score_distribution import (
    LEAST_SCALE,
    LEVELS,
    MOST_LEVELS,
    MOST_SHAPE,
    TAIL_LEVEL,
    ScoreDistribution,
    pareto,
)
from tests import reference

Array = npt.NDArray[Any]
LARGEST = float(np.finfo(np.float32).max)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
SCORES = hnp.arrays(np.float64, st.integers(2, 40), elements=FINITE | st.sampled_from([0.0, 1.0, 2.0]))


def distribution_of(scores: Array) -> ScoreDistribution:
    found = ScoreDistribution.of(scores)
    assert found is not None
    return found


def tailed(shape: float) -> ScoreDistribution:
    return ScoreDistribution(np.array([0.0, 1.0]), np.array([0.0, math.log(10)]), 0.5, shape)


@pytest.mark.parametrize("heaviness", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("count", [5, 10, 20, 60, 1000])
def test_surprise(count: int, heaviness: float) -> None:
    scores = np.exp(heaviness * np.random.default_rng(count).standard_normal(count)) + np.linspace(0, 1, count)
    levels = np.linspace(0, TAIL_LEVEL, min(count, LEVELS))
    rounded = [reference.rounded_up(s) for s in scores.tolist()]
    values = np.quantile(rounded, levels)
    scale, shape = reference.pareto_tail([s - values[-1] for s in rounded if s > values[-1]])
    asked = np.concatenate([scores, values, [-1.0, 20.0, 1e4]])
    expected = [reference.surprise(s, values.tolist(), levels.tolist(), scale, shape) for s in asked.tolist()]
    found = distribution_of(scores)
    np.testing.assert_allclose([found.scale, found.shape], [scale, shape], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.surprise_at(asked), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [0.0, 0.3, 0.7])
def test_the_shape_of_a_pareto_tail(shape: float) -> None:
    """Quantiles at even levels stand for a sample of any size; the weighted moments are consistent below 1 / 2 only."""
    survival = 1 - (np.arange(200_000) + 0.5) / 200_000
    excesses = -np.log(survival) if shape == 0 else (survival**-shape - 1) / shape
    assert pareto(3 * excesses) == pytest.approx((3.0, shape), abs=0.05)


def test_surprise_is_exponential_for_the_data_themselves() -> None:
    scores = np.random.default_rng(0).standard_t(3, 20_000)
    assert distribution_of(scores).surprise_at(scores).mean() == pytest.approx(1.0, abs=0.03)  # that of Exp(1)


@given(SCORES)
def test_finite_and_in_order(scores: Array) -> None:
    """Ties, few examples and the largest float32 numbers included."""
    found = ScoreDistribution.of(scores)
    if found is None:
        return
    asked = np.sort(np.concatenate([scores, found.values, [-LARGEST, LARGEST]]))
    surprise = found.surprise_at(asked)
    assert np.isfinite(surprise).all()
    assert (np.diff(surprise) >= -1e-12).all()  # an interpolation may round
    assert (np.diff(found.values) > 0).all()
    assert found.surprise[-1] == pytest.approx(math.log(10))
    assert found.scale >= LEAST_SCALE
    assert 0 <= found.shape <= MOST_SHAPE


@given(SCORES)
def test_continuous_where_the_tail_begins(scores: Array) -> None:
    found = ScoreDistribution.of(scores)
    if found is None:
        return
    start = found.start
    at, above = found.surprise_at(np.array([start, start + 1e-9 * found.scale]))
    assert at == pytest.approx(math.log(10))
    assert above == pytest.approx(at, abs=1e-6)


@given(st.lists(FINITE, min_size=3, max_size=8), st.integers(0, 2**32))
def test_scores_that_differ_by_rounding_alone_are_one(values: list[float], seed: int) -> None:
    """A served copy of a held-out input surprises as its copies do, however the last digits fell."""
    rng = np.random.default_rng(seed)
    scores = np.repeat([reference.rounded_up(v) for v in values], 40) * (1 - 2.0**-16)  # within a step, not at its end
    found, exact = (ScoreDistribution.of(scores * (1 + e)) for e in (1e-7 * rng.uniform(-1, 1, len(scores)), 0.0))
    assert (found is None) == (exact is None)
    if found is not None and exact is not None:
        asked = scores * (1 + 1e-7 * rng.uniform(-1, 1, len(scores)))
        np.testing.assert_allclose(found.surprise_at(asked), exact.surprise_at(scores), atol=0.02)


@given(st.floats(1e-12, 1e-7), st.floats(0, 1e4))
def test_a_shape_near_0_is_a_shape_of_0(shape: float, score: float) -> None:
    near, exponential = (tailed(xi).surprise_at(np.array([score]))[0] for xi in (shape, 0.0))
    excess = max(score - 1, 0.0) / 0.5
    assert abs(near - exponential) <= shape * excess**2 / 2 + 1e-12 * (1 + exponential)


@given(st.floats(0, 0.9), st.floats(0, 0.9), st.floats(1, 1e6))
def test_a_heavier_tail_surprises_less(one: float, other: float, score: float) -> None:
    light, heavy = sorted((one, other))
    above, below = (tailed(xi).surprise_at(np.array([score]))[0] for xi in (light, heavy))
    assert below <= above * (1 + 1e-9)


def test_grows_beyond_the_largest_score() -> None:
    heavy = distribution_of(np.exp(2 * np.random.default_rng(0).standard_normal(300)))
    assert heavy.shape > 0.3
    for found in (heavy, distribution_of(np.arange(100.0))):
        beyond = found.surprise_at(np.array([1e3, 1e4, 1e6, 1e12, 1e60, LARGEST * 1e30]))
        assert np.isfinite(beyond).all()
        assert all(a < b for a, b in itertools.pairwise(np.sort(beyond)))


@pytest.mark.parametrize("shape", [0.0, 0.3, 0.9])
def test_compressed_against_the_equation(shape: float) -> None:
    known, beyond = tailed(shape), 5.0
    scores = np.concatenate([np.linspace(-1, 4, 30), [10.0, 1e3, 1e6]])
    plain = known.surprise_at(scores)
    tail = math.exp(shape * (beyond - math.log(10)))  # 1 + xi z, where z is the excess in scales
    start = 1 + 0.5 * ((tail - 1) / shape if shape else beyond - math.log(10))
    expected = [
        reference.compressed_surprise(u, beyond, 1 / (0.5 * tail), s, start)
        for u, s in zip(plain.tolist(), scores.tolist(), strict=True)
    ]
    np.testing.assert_allclose(known.compressed(beyond).surprise_at(scores), expected, atol=1e-3)


@given(SCORES, st.floats(2.5, 9.0))
def test_compressed_it_is_the_same_below_and_in_the_same_order_above(scores: Array, beyond: float) -> None:
    known = ScoreDistribution.of(scores)
    if known is None:
        return
    found = known.compressed(beyond)
    top = known.value_at(beyond)
    asked = np.sort(np.concatenate([scores, known.values, np.linspace(known.start, top, 7), [2 * abs(top), LARGEST]]))
    before, after = known.surprise_at(asked), found.surprise_at(asked)
    np.testing.assert_allclose(after[before < beyond], before[before < beyond], atol=0.02)
    assert np.isfinite(after).all()
    assert (np.diff(after) >= -1e-9).all()
    assert (np.diff(found.values) > 0).all()
    assert len(found.values) <= MOST_LEVELS
    assert (after <= before + 0.02).all()


def test_compressed_one_odd_score_surprises_little_more_than_what_can_be_told() -> None:
    known = distribution_of(np.linspace(0, 1, 40))
    odd = np.array([3.0, 80.0])
    assert (known.surprise_at(odd) > [30.0, 1000.0]).all()
    assert (known.compressed(5.0).surprise_at(odd) < [10.0, 14.0]).all()


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros(0),
        np.ones(50),
        np.array([1.0, np.nan]),
        np.array([1.0, np.inf]),
        np.r_[np.zeros(30), np.ones(30)],
        np.r_[np.zeros(30), 1e-250],
    ],
    ids=["none", "constant", "nan", "infinite", "two values", "hardly any difference"],
)
def test_scores_that_tell_nothing(scores: Array) -> None:
    assert ScoreDistribution.of(scores) is None


@pytest.mark.parametrize("excesses", [[2.0], [2.0, 2.0], [2.0] * 7])
def test_one_excess_or_equal_ones_have_an_exponential_tail(excesses: list[float]) -> None:
    assert pareto(np.array(excesses)) == pytest.approx((2.0, 0.0))
