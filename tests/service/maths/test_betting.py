"""service/maths/betting.py: the capital is that of its definition, and a gambler goes on where another one stood."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probity.service.maths.accuracy_evidence import ODDS_RATIOS
from probity.service.maths.betting import JUMP, Gambler
from probity.service.maths.exchangeability import odds
from tests import reference

BETS = len(odds(0.5))


@given(st.lists(st.floats(1e-8, 1), min_size=1, max_size=40))
def test_the_capital_is_the_sum_of_all_gamblers(p_values: list[float]) -> None:
    gambler = Gambler(BETS)
    assert gambler.capital == 1
    found = [gambler.bet(odds(p)) for p in p_values]
    assert found == pytest.approx(reference.betting_capital([*map(reference.drift_factors, p_values)], JUMP))
    assert gambler.capital == found[-1]


@given(st.lists(st.floats(0, 1), max_size=30))
def test_the_capital_stays_positive_and_finite(p_values: list[float]) -> None:
    gambler = Gambler(BETS)
    assert all(0 < gambler.bet(odds(p)) < np.inf for p in p_values)


@given(st.lists(st.floats(0.1, 3), min_size=1, max_size=20), st.integers(0, 20))
def test_a_gambler_goes_on_where_another_one_stood(factors: list[float], pause: int) -> None:
    first, whole = Gambler(len(ODDS_RATIOS)), Gambler(len(ODDS_RATIOS))
    for number, factor in enumerate(factors):
        if number == pause:
            first = Gambler.of(first.steps, first.bets)
        each = [factor, *[1.0] * (len(ODDS_RATIOS) - 1)]
        assert first.bet(each) == whole.bet(each)
