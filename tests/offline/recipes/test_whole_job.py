"""offline/recipes/whole_job.py: the time left follows the prediction, and the pace where that was wrong."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.offline.recipes.whole_job import WholeJob


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def job(clock: Clock) -> WholeJob:
    return WholeJob({"selection": 10.0, "curvature": 60.0, "unknown": None, "export": 30.0}, clock)


def test_what_is_left_is_what_was_predicted() -> None:
    clock = Clock()
    whole = job(clock)
    assert (whole.left, whole.share, whole.known) == (100.0, 0.0, False)
    clock.now += 4
    assert whole.left == pytest.approx(96)
    whole.enter("curvature")
    assert whole.left == pytest.approx(90)
    clock.now += 30
    assert whole.left == pytest.approx(60)
    assert whole.share == pytest.approx(34 / 94)


def test_a_loop_that_is_slower_than_predicted_tells() -> None:
    clock = Clock()
    whole = job(clock)
    whole.enter("curvature")
    clock.now += 50
    whole.stage_left = 150.0
    assert whole.left == pytest.approx(180)


def test_a_part_that_takes_longer_than_predicted_is_soon_done() -> None:
    clock = Clock()
    whole = job(clock)
    whole.enter("export")
    assert whole.known
    clock.now += 300
    assert whole.left == 0
    assert whole.share == 1


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)), max_size=20))
def test_the_share_never_falls(steps: list[tuple[float, float]]) -> None:
    clock, shares = Clock(), list[float]()
    whole = job(clock)
    for (seconds, left), part in zip(steps, ["selection", "curvature", "unknown", "export"] * 5, strict=False):
        whole.enter(part)
        clock.now += seconds
        whole.stage_left = left
        shares.append(whole.share)
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
