"""service/maths/betting.py: the capital is that of its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
