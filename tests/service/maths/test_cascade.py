"""service/maths/cascade.py: the score of a cascade, against one example after the other."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.maths.cascade import Band
from tests import reference

positive = st.floats(1e-12, 1e6)
scores = st.lists(st.floats(0, 1e7) | st.just(math.inf) | st.just(math.nan), min_size=1, max_size=8)


@st.composite
def bands(draw: st.DrawFn) -> Band:
    low = draw(positive | st.just(0.0))
    return Band(low, draw(st.floats(max(low, 1e-12), 1e7) | st.just(math.inf)), draw(positive))


@given(bands(), scores)
def test_it_is_the_score_one_by_one(band: Band, first: list[float]) -> None:
    found = np.where(band.decided(np.array(first)), band.placed(np.array(first)), 0.5)
    expected = [reference.cascade_score(s, 0.5, band.low, band.high, band.threshold) for s in first]
    np.testing.assert_array_equal(found, expected)


@given(bands(), scores)
def test_what_the_first_stage_decides_keeps_its_verdict_at_the_threshold(band: Band, first: list[float]) -> None:
    """Whatever rounds: below the band no score is above the threshold, above it every one is."""
    values = np.array(first)
    decided, placed = band.decided(values), band.placed(values)
    assert (placed[decided] > band.threshold).tolist() == band.rejects(values)[decided].tolist()
    assert np.isfinite(placed[decided]).all()


@given(bands(), st.lists(st.floats(0, 2), min_size=2, max_size=8))
def test_it_keeps_the_order_of_the_first_stage(band: Band, shares: list[float]) -> None:
    """Scores up to twice either end of the band."""
    ends = [band.low] if band.high == math.inf else [band.low, band.high]
    values = np.sort([end * share for end in ends for share in shares])
    placed = band.placed(values[band.decided(values)])
    assert (np.diff(placed) >= 0).all()


def test_next_to_the_band() -> None:
    band = Band(0.3, 0.7, 1.1)
    values = np.array([np.nextafter(0.3, 0), 0.3, 0.7, np.nextafter(0.7, 1)])
    assert band.decided(values).tolist() == [True, False, False, True]
    below, *_, above = band.placed(values).tolist()
    assert below <= 1.1 < above


def test_a_band_without_ends_decides_nothing() -> None:
    assert not Band(0.0, math.inf, 1.0).decided(np.array([0.0, 1e-300, 1.0, math.inf, math.nan])).any()
