"""service/maths/martingale.py: the value is that of its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.maths.exchangeability import odds
from demur.service.maths.martingale import JUMP, Martingale
from tests import reference

COMPONENTS = len(odds(0.5))


@given(st.lists(st.floats(1e-8, 1), min_size=1, max_size=40))
def test_the_value_is_that_of_its_definition(p_values: list[float]) -> None:
    martingale = Martingale(COMPONENTS)
    assert martingale.value == 1
    found = [martingale.multiply(odds(p)) for p in p_values]
    assert found == pytest.approx(reference.martingale_values([*map(reference.drift_factors, p_values)], JUMP))
    assert martingale.value == found[-1]


@given(st.lists(st.floats(0, 1), max_size=30))
def test_the_value_stays_positive_and_finite(p_values: list[float]) -> None:
    martingale = Martingale(COMPONENTS)
    assert all(0 < martingale.multiply(odds(p)) < np.inf for p in p_values)
