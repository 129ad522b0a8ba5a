"""What the predicted time counts: with one second for each example, seconds are examples."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from demur.offline.data.held_out import HeldOut, collect_held_out
from demur.offline.data.loaders import Passes
from demur.offline.estimate import duration
from demur.offline.estimate.job_memory import plan_stand_in
from demur.offline.estimate.timing import MatrixSeconds
from demur.offline.features.layers import choose_layers
from demur.offline.job import Job
from demur.offline.laplace.scoring import HeldOutOutputs, choose_score
from demur.offline.selection.select import reachable_weights
from tests.support.cases import CASES
from tests.support.selections import make_job

CASE = next(case for case in CASES if case.name == "cnn-classification-10")
IMAGE_SHIFTS = 6


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    each = duration.Rates(forward=100.0, derivatives=1.0, curvature=1.0, matrices=MatrixSeconds(0.0, 0.0))
    monkeypatch.setattr(duration.Rates, "measured", lambda *_: each)
    return make_job(CASE.model(), [CASE.data(4)], 5, 10, selection="random")


def on_held_out_data(job: Job, held_out: int) -> float | None:
    reach = reachable_weights(job)
    seconds = duration.predict_duration(job, reach, plan_stand_in(job, reach, 0), held_out, 0.0)["held-out data"]
    return (
        None if seconds is None else seconds - 100.0 * (held_out // 2)
    )  # but for the temperature of the plain network


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


def with_examples(job: Job, count: int, **changes: Any) -> Job:
    """Of so many training examples, with these options."""
    passes = Passes("train_loader")
    passes.examples = count
    return replace(job, passes=passes, config=job.config.model_copy(update=changes))


def stages(job: Job, held_out: int) -> dict[str, float]:
    reach = reachable_weights(job)
    found = duration.predict_duration(job, reach, plan_stand_in(job, reach, 0), held_out, 0.0)
    return {name: seconds for name, seconds in found.items() if seconds is not None}


def test_added_weights_are_counted(job: Job) -> None:
    """A pass over the training data, and for held-out data a forward pass each time."""
    plain = with_examples(job, 10, prior_precision="budget")
    reading = replace(plain, layers=choose_layers(job.network, job.example))
    alone, added = stages(plain, 40), stages(reading, 40)
    assert (alone["added weights"], added["added weights"]) == (0.0, 100.0 * 10)
    derived, read = 20, 20 + 40
    assert added["held-out data"] - alone["held-out data"] == derived + 100.0 * read


def test_the_last_layers_cost_forward_passes_alone(job: Job) -> None:
    """Three for each example that tells which weights live."""
    assert stages(with_examples(job, 5000, selection="auto"), 40)["selection"] == 100.0 * 3 * 1000
    assert stages(with_examples(job, 10, selection="auto"), 40)["selection"] == 100.0 * 3 * 10
