"""service/maths/rejection.py: the conformal guarantee, and that threshold and p-value never disagree."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from demur.service.maths.rejection import (
    RejectionRule,
    minimum_calibration_examples,
    rate_range,
    share_bound,
)

Array = npt.NDArray[Any]
JUST_BELOW_ONE = math.nextafter(1.0, 0.0)

few_values = st.lists(st.integers(0, 3).map(float), min_size=1, max_size=40)  # many ties
any_values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)
scores_lists = (few_values | any_values).map(sorted)


@st.composite
def rules(draw: st.DrawFn) -> RejectionRule:
    """Any scores; any rate, with those on and right beside a possible p-value drawn often."""
    scores = np.array(draw(scores_lists))
    on = st.integers(1, len(scores)).map(lambda j: j / (len(scores) + 1))
    beside = st.tuples(on, st.sampled_from([0.0, 1.0])).map(lambda pair: math.nextafter(*pair))
    alpha = draw(on | beside | st.floats(1e-6, JUST_BELOW_ONE))
    return RejectionRule(scores, alpha)


def slow_p_value(score: float, calibration: Array) -> float:
    return (1 + sum(1 for other in calibration if other >= score)) / (len(calibration) + 1)


def around(scores: Array) -> Array:
    """Every calibration score and the numbers next to it, and two beyond all of them."""
    beside = [np.nextafter(scores, -np.inf), scores, np.nextafter(scores, np.inf)]
    return np.concatenate([*beside, [scores[0] - 1, scores[-1] + 1]])


@given(rules())
def test_p_values_match_the_count(rule: RejectionRule) -> None:
    queries = around(rule.scores)
    expected = [slow_p_value(score, rule.scores) for score in queries]
    np.testing.assert_array_equal(rule.p_value(queries), expected)


@example(RejectionRule(np.arange(10.0), JUST_BELOW_ONE))
@example(RejectionRule(np.arange(10.0), 1 - 1e-12))
@example(RejectionRule(np.arange(9.0), math.nextafter(0.3, 0.0)))
@example(RejectionRule(np.zeros(19), 0.05))
@example(RejectionRule(np.arange(99.0), 0.29))
@given(rules())
def test_rejected_is_the_same_as_a_small_p_value(rule: RejectionRule) -> None:
    queries = around(rule.scores)
    rejected = rule.rejected(queries)
    np.testing.assert_array_equal(rejected, rule.p_value(queries) <= rule.false_reject_rate)
    np.testing.assert_array_equal(rejected, queries > rule.threshold)


@given(rules())
def test_no_more_than_the_rate_of_the_calibration_data_is_rejected(rule: RejectionRule) -> None:
    assert rule.rejected(rule.scores).mean() <= rule.false_reject_rate


@given(st.lists(st.integers(0, 5).map(float), min_size=2, max_size=30), st.floats(0.01, 0.99))
def test_p_values_are_valid_for_exchangeable_data(scores: list[float], alpha: float) -> None:
    """Of n + 1 values, each held against the n others, at most a share alpha has p <= alpha."""
    small = 0
    for held_out, score in enumerate(scores):
        rest = np.sort(np.delete(np.array(scores), held_out))
        small += int(RejectionRule(rest, alpha).p_value(np.array([score]))[0] <= alpha)
    assert small <= alpha * len(scores) + 1e-9


@given(rules())
def test_a_larger_score_never_has_a_larger_p_value(rule: RejectionRule) -> None:
    p_values = rule.p_value(np.sort(around(rule.scores)))
    assert (np.diff(p_values) <= 0).all()
    assert ((p_values > 0) & (p_values <= 1)).all()


@pytest.mark.parametrize("rate", [0.9, 0.5, 1 / 3, 0.3, 0.1, 0.05, 0.01, 0.001])
def test_the_fewest_examples_with_which_anything_is_rejected(rate: float) -> None:
    fewest = minimum_calibration_examples(rate)
    assert fewest == next(n for n in range(1, 10_000) if 1 / (n + 1) <= rate)
    assert math.isfinite(RejectionRule(np.arange(float(fewest)), rate).threshold)
    if fewest > 1:
        too_few = RejectionRule(np.arange(float(fewest - 1)), rate)
        assert too_few.threshold == math.inf
        assert not too_few.rejected(np.array([1e9])).any()


@pytest.mark.parametrize(("n", "alpha"), [(19, 0.05), (40, 0.05), (180, 0.05), (1000, 0.01), (10, 0.95), (5000, 0.3)])
def test_what_the_calibration_set_leaves_open(n: int, alpha: float) -> None:
    """The share of new scores above the threshold is Beta(k, n + 1 - k) distributed: its quantile, and the draws."""
    beta = pytest.importorskip("scipy.stats").beta
    k = sum(rank / (n + 1) <= alpha for rank in range(1, n + 1))
    rule = RejectionRule(np.arange(n, dtype=np.float64), alpha)
    assert rule.rate_bound(0.999) == pytest.approx(beta.ppf(0.999, k, n + 1 - k), rel=1e-6)
    scores = np.sort(np.random.default_rng(0).random((2000, n)), axis=1)
    rates = np.array([1 - RejectionRule(row, alpha).threshold for row in scores])
    assert 0.001 < (rates > rule.rate_bound(0.99)).mean() < 0.03
    low, high = rate_range(n, alpha, 0.9)
    assert (low, high) == pytest.approx(beta.ppf([0.05, 0.95], k, n + 1 - k), rel=1e-6)
    assert 0.87 < ((rates > low) & (rates < high)).mean() < 0.93


def test_a_rule_that_rejects_nothing_has_no_false_rejects() -> None:
    assert RejectionRule(np.arange(5.0), 0.05).rate_bound() == 0.0
    assert rate_range(5, 0.05) == (0.0, 0.0)


@pytest.mark.parametrize(("n", "d"), [(1, 0), (10, 0), (150, 1), (180, 7), (10_000, 100), (10_000, 9000), (5, 5)])
def test_the_bound_of_clopper_and_pearson(n: int, d: int) -> None:
    beta = pytest.importorskip("scipy.stats").beta
    expected = 1.0 if d == n else beta.ppf(0.95, d + 1, n - d)
    assert share_bound(n, d + 1, 0.95) == pytest.approx(expected, rel=1e-6)


def test_no_examples_bound_nothing() -> None:
    assert share_bound(0, 1, 0.95) == 1.0
