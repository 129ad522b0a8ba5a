"""service/models/deviation.py: the quartiles are at -1, 0 and 1, for every score; and whatever a bundle says."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from demur.service.bundle import REFERENCE_LEVELS
from demur.service.models.deviation import LEAST_SPREAD, Deviation
from demur.service.monitoring.metrics import DEVIATIONS


def distance(deviation: Deviation, value: float) -> float:
    """d(x)."""
    return (value - deviation.median) / (deviation.upper if value >= deviation.median else deviation.lower)


quantiles = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=5, max_size=5).map(np.array)


@pytest.mark.parametrize("shift", [0.0, -12.0, 1e4])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_quartiles_are_at_one_whatever_the_unit_and_the_sign(shift: float, scale: float) -> None:
    values = scale * (shift + np.random.default_rng(0).lognormal(0, 2, 1001))
    deviation = Deviation.from_quantiles(np.quantile(values, REFERENCE_LEVELS))
    found = [distance(deviation, value) for value in np.quantile(values, (0.25, 0.5, 0.75)).tolist()]
    assert found == pytest.approx([-1, 0, 1])


def test_it_is_linear_on_either_side() -> None:
    deviation = Deviation.from_quantiles(np.array([0.0, 2.0, 3.0, 7.0, 9.0]))
    assert [distance(deviation, x) for x in (-1.0, 2.5, 3.0, 5.0, 11.0)] == [-4, -0.5, 0, 0.5, 2]
    assert deviation.values_at((-4, -0.5, 0, 0.5, 2)) == [-1, 2.5, 3, 5, 11]


@pytest.mark.parametrize(
    ("reference", "lower", "upper"),
    [
        ([0.0, 0.0, 0.0, 0.0, 2.0], 1.0, 2.0),
        ([0.0, 0.0, 0.0, 0.0, 0.0], 1.0, 1.0),
        ([-5.0, -1.0, -1.0, -1.0, -1.0], 4.0, 1.0),
        ([100.0, 100.0 - 1e-9, 100.0, 100.0 + 1e-9, 100.0], 100 * LEAST_SPREAD, 100 * LEAST_SPREAD),
    ],
)
def test_quartiles_that_are_the_median(reference: list[float], lower: float, upper: float) -> None:
    assert (
        Deviation.from_quantiles(np.array(reference)).lower,
        Deviation.from_quantiles(np.array(reference)).upper,
    ) == (
        lower,
        upper,
    )


@given(quantiles, st.floats(allow_nan=False, allow_infinity=False))
@example(np.array([-1.7e308, -1.7e308, 0.0, 1.7e308, 1.7e308]), 1.7e308)
@example(np.array([-1.7e308, -1.7e308, -1.7e308, 1.7e308, 1.7e308]), 1.7e308)
def test_whatever_the_quantiles_the_bounds_ascend_and_nothing_is_nan(reference: np.ndarray, value: float) -> None:
    deviation = Deviation.from_quantiles(reference)
    bounds = deviation.values_at(DEVIATIONS)
    assert all(low <= high for low, high in itertools.pairwise(bounds))
    assert not any(map(math.isnan, (*bounds, distance(deviation, value))))
    assert deviation.lower > 0
    assert deviation.upper > 0
