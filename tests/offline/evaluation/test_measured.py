"""Intervals of shares against the binomial distribution."""

import pytest

from demur.offline.evaluation.measured import clopper_pearson, measured_share
from tests import reference


@pytest.mark.parametrize(("count", "examples"), [(0, 1), (1, 1), (0, 40), (3, 40), (20, 40), (40, 40), (199, 200)])
def test_the_ends_leave_a_fortieth_in_each_tail(count: int, examples: int) -> None:
    low, high = clopper_pearson(count, examples)
    if count < examples:
        assert reference.binomial_below(examples, count + 1, high) == pytest.approx(0.025, rel=1e-6)
    if count:
        assert 1 - reference.binomial_below(examples, count, low) == pytest.approx(0.025, rel=1e-6)
    assert (low == 0, high == 1) == (count == 0, count == examples)


@pytest.mark.parametrize(("count", "low", "high"), [(480, 0.007302736, 0.008745461), (59_000, 0.98227695, 0.98434259)])
def test_many_examples_as_scipy_has_it(count: int, low: float, high: float) -> None:
    """scipy.stats.binomtest(count, 60_000).proportion_ci(0.95, "exact")."""
    assert clopper_pearson(count, 60_000) == pytest.approx((low, high), rel=1e-6)


def test_a_count_that_is_not_whole_is_rounded_outwards() -> None:
    low, high = clopper_pearson(8.5, 10)
    assert (low, high) == (clopper_pearson(8, 10)[0], clopper_pearson(9, 10)[1])
    assert measured_share(0.85, 10).interval == (low, high)
    assert measured_share(0.7, 10).interval == clopper_pearson(7, 10)
