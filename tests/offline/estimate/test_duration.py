"""What the predicted time counts: with one second for each example, seconds are examples."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from offline.data.held_out import HeldOut, collect_held_out
from offline.estimate import duration
from offline.estimate.job_memory import plan_stand_in
from offline.job import Job
from offline.laplace.scoring import HeldOutOutputs, choose_score
from tests.support.cases import CASES
from tests.support.selections import make_job

CASE = next(case for case in CASES if case.name == "cnn-classification-10")
IMAGE_SHIFTS = 6


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(duration, "seconds_per_example", lambda *_: 1.0)
    return make_job(CASE.model(), [CASE.data(4)], 5, 10, selection="random")


def on_held_out_data(job: Job, held_out: int) -> float | None:
    return duration.predict_duration(job, plan_stand_in(job, 0), held_out, 0.0)["held-out data"]


def test_foreign_data_take_the_place_of_shifts(job: Job) -> None:
    comparing = with_config(job, score="fused")
    foreign = replace(comparing, foreign=CASE.data(30)[0])
    assert on_held_out_data(foreign, 40) == 60 + 30


def with_config(job: Job, **changes: Any) -> Job:
    return make_job(CASE.model(), [CASE.data(4)], 5, 10, selection="random", **changes)


@pytest.mark.parametrize("score", ["auto", "fused"])
def test_a_comparison_of_scores_is_counted(job: Job, score: str) -> None:
    """As many examples as it asks for: the half that tunes, at most 250, under each shift."""
    comparing = with_config(job, score=score)
    for tuning, expected in ((20, 20 * IMAGE_SHIFTS), (400, 250 * IMAGE_SHIFTS)):
        plain, counted = on_held_out_data(job, 2 * tuning), on_held_out_data(comparing, 2 * tuning)
        assert plain == 3 * tuning
        assert counted == plain + expected
    asked = []

    def predict(data: HeldOut) -> HeldOutOutputs:
        asked.append(len(data))
        mean = np.random.default_rng(len(asked)).normal(size=(len(data), 10))
        return HeldOutOutputs(mean, np.ones_like(mean))

    data = collect_held_out(iter([CASE.data(20)]), job.likelihood)
    tuned = predict(data)
    asked.clear()
    choose_score(comparing, job.likelihood, data, tuned, predict)
    assert sum(asked) == 20 * IMAGE_SHIFTS


def test_a_score_that_is_named_takes_nothing_more(job: Job) -> None:
    assert on_held_out_data(with_config(job, score="energy"), 100) == on_held_out_data(job, 100) == 150
