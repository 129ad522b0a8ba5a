"""offline/cascade/band.py: the narrowest band, against every pair of ends; and the agreement measured outside it."""

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.cascade.band import Verdicts, choose_band
from offline.cascade.fit import FittedCascade, agreements, measure_agreement
from service.bundle import CascadeAgreement
from service.maths.cascade import Band

few = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=10)


def verdicts(pairs: list[tuple[int, bool]]) -> Verdicts:
    return Verdicts(np.array([s for s, _ in pairs], np.float64), np.array([r for _, r in pairs]))


def share_inside(pairs: list[tuple[int, bool]], low: float, high: float) -> float:
    return sum(low <= s <= high for s, _ in pairs) / len(pairs)


def allowed(pairs: list[tuple[int, bool]], low: float, high: float, rate: float) -> bool:
    below, above = [r for s, r in pairs if s < low], [r for s, r in pairs if s > high]
    accepted = not below or below.count(False) / len(below) >= rate
    return accepted and (not above or above.count(True) / len(above) >= rate)


@given(st.lists(few, min_size=1, max_size=2), st.sampled_from([0.5, 0.8, 1.0]))
def test_no_allowed_band_between_scores_is_narrower(groups: list[list[tuple[int, bool]]], rate: float) -> None:
    band = choose_band([verdicts(pairs) for pairs in groups], 0.7, rate)
    assert band.threshold == 0.7
    assert all(allowed(pairs, band.low, band.high, rate) for pairs in groups)
    ends = [0.0, *sorted({float(s) for pairs in groups for s, _ in pairs}), math.inf]
    width = {
        (low, high): float(np.mean([share_inside(pairs, low, high) for pairs in groups]))
        for low, high in product(ends, ends)
        if low <= high and low < math.inf and high > 0 and all(allowed(pairs, low, high, rate) for pairs in groups)
    }
    assert np.mean([share_inside(pairs, band.low, band.high) for pairs in groups]) == pytest.approx(min(width.values()))


def test_stages_that_always_agree_leave_next_to_nothing_inside() -> None:
    scores = np.linspace(0.1, 1, 100)
    band = choose_band([Verdicts(scores, scores > 0.6)], 0.5, 0.99)
    assert band.low <= band.high
    assert np.count_nonzero(~band.decided(scores)) == 1


def test_stages_without_relation_leave_nearly_everything_inside() -> None:
    rng = np.random.default_rng(0)
    group = Verdicts(rng.random(2000), rng.random(2000) > 0.5)
    assert choose_band([group], 0.5, 0.99).decided(group.scores).mean() < 0.02


def test_the_agreement_is_counted_outside_the_band() -> None:
    group = Verdicts(np.array([0.1, 0.2, 0.5, 0.5, 0.9, 0.8]), np.array([False, True, True, False, True, True]))
    band = Band(0.3, 0.7, 1.0)
    assert agreements(band, group) == (4, 3)
    found = measure_agreement(band, group, None, verdicts_changed=0.0, log_likelihood_difference=0.0)
    assert (found.examples, found.decided, found.agreement, found.shift_agreement) == (6, 4, 0.75, None)
    assert 0.2 < found.lower_bound < 0.3
    nothing = measure_agreement(
        Band(0.0, math.inf, 1.0), group, group, verdicts_changed=0.0, log_likelihood_difference=0.0
    )
    assert (nothing.decided, nothing.agreement, nothing.lower_bound) == (0, None, 0.0)
    assert (nothing.shift_decided, nothing.shift_agreement) == (0.0, None)


@pytest.mark.parametrize("true", [0.9, 0.98])
def test_the_bound_holds_for_new_examples_in_19_of_20_cases(true: float) -> None:
    rng, bounds = np.random.default_rng(1), []
    band = Band(0.5, 0.6, 1.0)
    for _ in range(600):
        rejected = rng.random(150) > true
        group = Verdicts(np.full(150, 0.1), rejected)
        bounds.append(measure_agreement(band, group, None, verdicts_changed=0, log_likelihood_difference=0).lower_bound)
    below = np.mean(np.array(bounds) <= true)
    assert 0.93 < below < 0.995


def fitted(decided: int, agreement: float | None) -> FittedCascade:
    """A cascade of which only the agreement matters."""
    nothing: Any = SimpleNamespace(warnings=("it jitters",))
    found = CascadeAgreement(200, decided, agreement, 0.9 if agreement else 0.0, 0.0, 0.0, None, None)
    return FittedCascade(nothing, nothing, Band(0.1, 0.2, 0.3), nothing, nothing, nothing, found, 0.99)


def test_a_cascade_that_falls_short_is_a_warning() -> None:
    expected = "first stage of the cascade: it jitters"
    assert fitted(100, 0.99).warnings == (expected,)
    short, nothing = fitted(100, 0.94).warnings, fitted(0, None).warnings
    assert short[0] == nothing[0] == expected
    assert "on 94.0 % of the 100 held-out examples that it decides (at least 90.0 %), less than the 99 %" in short[1]
    assert "decides none of 200 held-out examples" in nothing[1]
