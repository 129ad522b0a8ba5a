"""service/models/buckets.py: few, finite and ascending whatever a bundle says, and sharp where its values lie."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probity.service.models.buckets import UNIT, UNKNOWN_SIZE, around, around_any, around_complement, p_values

MOST = 30
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
quantiles = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=5, max_size=5).map(np.array)


def check(buckets: tuple[float, ...]) -> None:
    assert 2 <= len(buckets) <= MOST
    assert all(math.isfinite(bound) for bound in buckets)
    assert all(low < high for low, high in itertools.pairwise(buckets))


@given(quantiles, st.sampled_from([math.inf, 1.0, math.log(10), 1e-9]))
def test_whatever_the_quantiles_the_buckets_are_few_finite_and_ascending(reference: np.ndarray, largest: float) -> None:
    buckets = around(reference, largest)
    check(buckets)
    assert largest == math.inf or buckets[-1] == largest


@given(quantiles, st.sampled_from([0.5, 0.1, 1e-3]))
def test_buckets_of_a_probability_end_at_one(reference: np.ndarray, smallest: float) -> None:
    buckets = around_complement(reference, smallest)
    check(buckets)
    assert buckets[-1] == 1.0
    assert buckets[0] >= 0


@pytest.mark.parametrize("scale", [1e-6, 1.0, 20.0, 1e9])
@pytest.mark.parametrize("spread", [0.01, 0.3, 1.0])
def test_medians_are_read_as_they_are_up_to_eight_times_the_highest_quantile(scale: float, spread: float) -> None:
    rng = np.random.default_rng(0)
    calibration = scale * rng.lognormal(0, spread, 2000)
    bounds = around(np.quantile(calibration, LEVELS))
    for factor in (1.0, 1.3, 2.0, 5.0):
        values = factor * scale * rng.lognormal(0, spread, 2000)
        assert median(values, bounds) == pytest.approx(np.median(values), rel=0.12)


def median(values: np.ndarray, bounds: tuple[float, ...]) -> float:
    """As Prometheus reads it: a straight line through the bucket."""
    cumulative = np.searchsorted(np.sort(values), bounds, side="right")
    i = int(np.searchsorted(cumulative, len(values) / 2))
    low, below = (bounds[i - 1], cumulative[i - 1]) if i else (0.0, 0)
    return float(low + (bounds[i] - low) * (len(values) / 2 - below) / (cumulative[i] - below))


def test_reference_quantiles_are_boundaries() -> None:
    reference = np.array([12.2273, 15.2876, 18.2762, 21.9221, 26.7369])
    assert set(np.round(reference, 2)) <= set(np.round(around(reference), 2))
    likely = np.array([0.8431, 0.9698, 0.9931, 0.9978, 0.9997])
    assert set(likely) <= set(around_complement(likely, 0.1))


def test_without_quantiles_the_buckets_are_those_of_any_model() -> None:
    for reference in (None, np.zeros(5), np.array([-1.0] * 5)):
        assert around(reference) == UNKNOWN_SIZE
        assert around(reference, 1.0) == UNIT
        assert around(reference, math.log(10))[-1] == math.log(10)
        assert around_complement(None, 0.1) == UNIT
    assert around_complement(np.ones(5), 0.1) == UNIT


@pytest.mark.parametrize(("examples", "rate"), [(1, 0.5), (19, 0.05), (180, 0.05), (10**6, 0.001), (40, 0.123)])
def test_p_values_begin_with_the_least_that_there_is(examples: int, rate: float) -> None:
    buckets = p_values(examples, rate)
    check(buckets)
    assert buckets[0] == 1 / (examples + 1)
    assert buckets[-1] == 1.0
    assert rate in buckets


def test_a_quantity_that_may_be_negative() -> None:
    found = around_any(np.array([-12.0, -9.0, -7.0, -4.0, 1.5]))
    check(found)
    assert {-12.0, -9.0, -7.0, -4.0, 1.5} <= set(found)
    assert found[0] < -100
    assert found[-1] > 100
    assert around_any(np.array([0.1, 0.2]), 2.0) == around(np.array([0.1, 0.2]), 2.0)
    assert around_any(None) == around(None)


@given(quantiles)
def test_whatever_the_quantiles_also_below_zero(reference: np.ndarray) -> None:
    check(around_any(reference))
