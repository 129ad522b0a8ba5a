"""service/maths/exchangeability.py: no alarm without a change, an alarm soon after one, and the sums behind them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.maths import exchangeability
from demur.service.maths.exchangeability import SPENT, STAKES, DriftTest, SmoothedPValues, TailOdds, odds
from demur.service.maths.martingale import JUMP
from tests import reference

Array = npt.NDArray[Any]
LEVEL = 100.0
scores = st.lists(st.integers(0, 4).map(float) | st.floats(-1e6, 1e6), max_size=30)


class Ties:
    """Stands for the generator: the same ties as the oracle's."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def random(self, count: int) -> Array:
        return self._generator.random(count)


@given(scores, st.lists(scores, max_size=4), st.integers(0, 2**32 - 1))
def test_p_values_equal_the_count(calibration: list[float], batches: list[list[float]], seed: int) -> None:
    """However the scores are divided into batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchangeability, "RECENT", 7)  # so that recent scores are merged now and then
        p_values, ties = SmoothedPValues(np.array(calibration), np.random.default_rng(seed)), Ties(seed)
        before = list(calibration)
        for batch in batches:
            expected = []
            for score, tie in zip(batch, ties.random(len(batch)).tolist(), strict=True):
                expected.append(reference.smoothed_p_value(score, before, tie))
                before.append(score)
            assert p_values.next(np.array(batch)) == pytest.approx(expected)
        assert len(p_values) == len(before)


@pytest.mark.parametrize("margin", [1e-3, 1e-6])
def test_scores_that_repeat_are_those_of_their_copies(margin: float) -> None:
    """Held-out scores are kept a little larger than a service computes them: against that, a tie is none."""
    generator = np.random.default_rng(0)
    for _ in range(5):
        calibration, served = (generator.choice([0.1, 0.4, 1.0, 2.0], n, p=[0.1, 0.4, 0.3, 0.2]) for n in (300, 4000))
        test = DriftTest((1 + margin) * calibration, LEVEL, generator)
        assert test.observe(served) == 0
        assert test.observe(np.where(served < 1, 1.0, served)) > 0


def test_no_component_grows_on_average() -> None:
    """The mean of each component's factor over uniform p-values is 1, but for what is cut off next to 0."""
    grid = (np.arange(400_000) + 0.5) / 400_000
    means = np.mean([odds(p) for p in grid.tolist()], axis=0)
    assert means == pytest.approx([1] * len(means), abs=1e-4)
    assert (np.array(odds(0.0)) <= np.array(odds(1e-9)) + 1e-8).all()  # so that no p-value is infinitely good


@pytest.mark.slow
def test_no_more_lies_above_the_largest_than_the_bound() -> None:
    """Over 4,000 calibration sets: the share of new scores above each limit exceeds its bound as rarely as promised."""
    generator, risk, wrong = np.random.default_rng(7), 0.05, 0
    for _ in range(4000):
        calibration = generator.random(150)
        wrong += any(1 - limit > bound for limit, bound in TailOdds(calibration, risk).bounds.items())
    assert wrong <= 4000 * (risk + 4 * np.sqrt(risk * (1 - risk) / 4000))


def test_a_factor_of_the_tail_has_a_mean_of_one_at_its_bound() -> None:
    odds_of = TailOdds(np.arange(100.0), 0.01)
    assert list(odds_of.bounds) == [99.0, 97.0, 90.0]
    assert len(odds_of) == 3 * len(STAKES) == len(odds_of.of(50.0))
    for place, limit in enumerate(sorted(odds_of.bounds)):
        share = odds_of.bounds[limit]
        for stake in range(len(STAKES)):
            lost, won = (odds_of.of(score)[len(STAKES) * place + stake] for score in (limit, limit + 0.5))
            assert (1 - share) * lost + share * won == pytest.approx(1)
    assert odds_of.of(99.0) == odds_of.of(98.0)  # not above the largest


@pytest.mark.slow
@pytest.mark.parametrize(("held_out", "share"), [(180, 0.1), (1000, 0.05), (1000, 0.02), (10_000, 0.01)])
def test_a_small_steady_share_is_noticed(held_out: int, share: float) -> None:
    """From the beginning, so that nothing has changed since: the p-values alone would take it for ordinary."""
    generator = np.random.default_rng(8)
    drift = DriftTest(generator.normal(size=held_out), LEVEL, generator)
    mixed = np.where(generator.random(6000) < share, 6.0, 0.0) + generator.normal(size=6000)
    assert drift.observe(mixed) >= 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchangeability, "MOST_SCORES", 500)
    generator = np.random.default_rng(0)
    p_values = SmoothedPValues(generator.normal(size=100), generator)
    found = np.array([p for _ in range(100) for p in p_values.next(generator.normal(size=20))])
    assert len(p_values) == 500
    assert ((found > 0) & (found < 1)).all()
    assert abs(found.mean() - 0.5) < 0.05


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_promised() -> None:
    """400 tests of 2,000 scores each, against calibration sets of 60: at most 1 % may alarm, at 4 standard errors."""
    generator = np.random.default_rng(1)
    alarms = sum(
        DriftTest(generator.normal(size=60), LEVEL, generator).observe(generator.normal(size=2000)) > 0
        for _ in range(400)
    )
    assert alarms <= 400 * (0.01 + 4 * np.sqrt(0.01 * 0.99 / 400))


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_a_few_foreign_inputs_among_many_are_noticed(share: float) -> None:
    generator = np.random.default_rng(4)
    drift = DriftTest(generator.normal(size=1000), LEVEL, generator)
    mixed = np.where(generator.random(3000) < share, 4.0, 0.0) + generator.normal(size=3000)
    assert drift.observe(mixed[: int(60 / share)]) >= 1


@pytest.mark.parametrize("shift", [-1.0, 1.0, 2.0])
@pytest.mark.parametrize("quiet", [0, 3000])
def test_a_change_is_noticed_soon_also_after_a_long_time_without(shift: float, quiet: int) -> None:
    generator = np.random.default_rng(2)
    drift = DriftTest(generator.normal(size=300), LEVEL, generator)
    assert drift.observe(generator.normal(size=quiet)) == 0
    assert drift.observe(shift + generator.normal(size=150)) >= 1
    assert drift.observe(shift + generator.normal(size=1000)) >= 5  # and again, as long as it lasts


@pytest.mark.parametrize(("calibration", "foreign"), [(100, 0.0), (100, 0.1), (100, 1.0), (4, 0.1)])
def test_evidence_is_half_the_larger_martingale(calibration: int, foreign: float) -> None:
    """Neither is a martingale by what both look at: so the larger one counts, at half of its worth. With too few
    held-out scores for the second, the first one counts whole."""
    generator = np.random.default_rng(11)
    known, served = generator.normal(size=calibration), generator.normal(size=40)
    served[generator.random(40) < foreign] += 4
    drift = DriftTest(known, 1e9, np.random.default_rng(5))
    drift.observe(served)
    p_values, tail = SmoothedPValues(known, np.random.default_rng(5)).next(served), TailOdds(known, SPENT / 1e9)
    values = [reference.martingale_values([*map(reference.drift_factors, p_values)], JUMP)[-1]]
    if calibration == 100:
        values.append(reference.martingale_values([[*tail.of(score)] for score in served.tolist()], JUMP)[-1])
    assert drift.evidence == pytest.approx(np.log10(max(values) / len(values)))


def test_evidence_is_a_logarithm_that_falls_while_nothing_changes() -> None:
    generator = np.random.default_rng(3)
    drift = DriftTest(generator.normal(size=300), LEVEL, generator)
    assert drift.evidence == pytest.approx(np.log10(0.5))
    drift.observe(generator.normal(size=3000))
    assert drift.evidence < -1
