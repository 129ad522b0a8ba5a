"""service/maths/accuracy_evidence.py: no alarm while predictions are as accurate as expected, one soon after a fall."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probity.service.maths.accuracy_evidence import LEVEL, bet_on_errors, fresh_gambler
from probity.service.maths.betting import JUMP
from tests import reference


@given(st.lists(st.booleans(), max_size=40), st.floats(0.5, 0.99))
def test_the_capital_is_that_of_its_definition(errors: list[bool], accuracy: float) -> None:
    """Up to the first alarm, after which the game begins again."""
    expected = reference.betting_capital([reference.accuracy_factors(e, accuracy) for e in errors], JUMP)
    gambler = fresh_gambler()
    for error, capital in zip(errors, expected, strict=True):
        found = bet_on_errors(gambler, [error], accuracy)
        if capital >= LEVEL:
            assert (found.alarms, found.gambler.capital) == (1, 1.0)
            break
        assert found.gambler.capital == pytest.approx(capital)
        assert found.log10_capital == pytest.approx(np.log10(capital))
        gambler = found.gambler


@pytest.mark.parametrize("accuracy", [0.7, 0.9, 0.99])
def test_alarms_without_cause_are_rare(accuracy: float) -> None:
    """At most 1 in 100 streams by Ville's inequality, here of 2,000 labels each."""
    generator = np.random.default_rng(0)
    streams = generator.random((300, 2000)) < 1 - accuracy
    alarms = sum(bet_on_errors(fresh_gambler(), stream.tolist(), accuracy).alarms > 0 for stream in streams)
    assert alarms <= 9  # more than 9 of 300 at a rate of 1 % have a probability of 0.1 %


@pytest.mark.parametrize(("accuracy", "now", "labels"), [(0.99, 0.95, 400), (0.9, 0.8, 400), (0.95, 0.5, 40)])
def test_a_fall_is_noticed_soon(accuracy: float, now: float, labels: int) -> None:
    """Also after a thousand labels that were as expected; the median over streams."""
    generator, delays = np.random.default_rng(1), []
    for _ in range(21):
        errors = np.concatenate([generator.random(1000) > accuracy, generator.random(4000) > now])
        gambler = bet_on_errors(fresh_gambler(), errors[:1000].tolist(), accuracy).gambler
        alarmed = (bet_on_errors(gambler, [error], accuracy).alarms for error in errors[1000:].tolist())
        delays.append(next(number for number, alarm in enumerate(alarmed, 1) if alarm))
    assert np.median(delays) <= labels


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_an_accuracy_that_leaves_nothing_to_lose_or_to_win_stays_finite(accuracy: float) -> None:
    found = bet_on_errors(fresh_gambler(), [0, 1, 0, 0.5, 1], accuracy)
    assert np.isfinite(found.log10_capital)
