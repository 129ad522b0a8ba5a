"""service/maths/accuracy_evidence.py: no alarm while predictions are as accurate as expected, one soon after a fall."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.maths.accuracy_evidence import ENOUGH, LEVEL, AccuracyTest
from demur.service.maths.martingale import JUMP
from tests import reference


def values(test: AccuracyTest, errors: Iterable[float]) -> Iterable[float]:
    for error in errors:
        test.observe([error])
        yield test.value


@given(st.lists(st.booleans(), max_size=40), st.floats(0.5, 0.99))
def test_the_value_is_that_of_its_definition(errors: list[bool], accuracy: float) -> None:
    """Up to where there is enough evidence."""
    expected = reference.martingale_values([reference.accuracy_factors(e, accuracy) for e in errors], JUMP)
    for found, value in zip(values(AccuracyTest(accuracy), errors), expected, strict=True):
        assert found == pytest.approx(value)
        if value >= ENOUGH:
            break


@pytest.mark.parametrize("accuracy", [0.7, 0.9, 0.99])
def test_alarms_without_cause_are_rare(accuracy: float) -> None:
    """At most 1 in 100 streams by Ville's inequality, here of 2,000 labels each."""
    streams = np.random.default_rng(0).random((300, 2000)) < 1 - accuracy
    alarms = sum(max(values(AccuracyTest(accuracy), stream.tolist())) >= LEVEL for stream in streams)
    assert alarms <= 9  # more than 9 of 300 at a rate of 1 % have a probability of 0.1 %


def test_alarms_of_several_processes_together_are_as_rare() -> None:
    """Each has a part of the labels, and the mean of their values is the evidence."""
    generator, alarms = np.random.default_rng(0), 0
    for _ in range(100):
        tests, highest = [AccuracyTest(0.9) for _ in range(4)], 0.0
        for error, test in zip(generator.random(2000) < 0.1, generator.choice(np.array(tests), 2000), strict=True):
            test.observe([float(error)])
            highest = max(highest, sum(one.value for one in tests) / 4)
        alarms += highest >= LEVEL
    assert alarms <= 5  # more than 5 of 100 at a rate of 1 % have a probability of 0.1 %


def test_the_largest_of_many_values_is_no_evidence() -> None:
    """Why the values of processes are averaged."""
    generator = np.random.default_rng(0)
    highest = [max(values(AccuracyTest(0.9), (generator.random(200) < 0.1).tolist())) for _ in range(1000)]
    of_twenty = np.array(highest).reshape(50, 20).max(axis=1)
    assert np.mean(of_twenty >= LEVEL) > 0.02


@pytest.mark.parametrize(("accuracy", "now", "labels"), [(0.99, 0.95, 400), (0.9, 0.8, 400), (0.95, 0.5, 40)])
def test_a_fall_is_noticed_soon(accuracy: float, now: float, labels: int) -> None:
    """Also after a thousand labels that were as expected; the median over streams."""
    generator, delays = np.random.default_rng(1), []
    for _ in range(21):
        test = AccuracyTest(accuracy)
        test.observe((generator.random(1000) > accuracy).tolist())
        found = values(test, (generator.random(4000) > now).tolist())
        delays.append(next(number for number, value in enumerate(found, 1) if value >= LEVEL))
    assert np.median(delays) <= labels


def test_the_alarm_ends_when_answers_are_right_again() -> None:
    test = AccuracyTest(0.95)
    test.observe([1] * 2000)
    assert ENOUGH <= test.value < 10 * ENOUGH
    generator = np.random.default_rng(2)
    found = values(test, (generator.random(2000) > 0.97).tolist())
    assert next(number for number, value in enumerate(found) if value < LEVEL) < 500


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_an_accuracy_that_leaves_nothing_to_lose_or_to_win_stays_finite(accuracy: float) -> None:
    test = AccuracyTest(accuracy)
    test.observe([0, 1, 0, 0.5, 1])
    assert 0 < test.value < np.inf
