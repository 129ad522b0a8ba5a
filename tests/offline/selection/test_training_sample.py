"""The sample of the training data in memory: uniform, nested, and no larger than memory allows."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline.selection.sample import Sample, holding
from demur.offline.selection.training_sample import MEMORY_SHARE, TrainingSample, draw_sample
from tests.support.selections import Reread, changed, make_job
from tests.support.selections import context as selection_context

INPUTS = torch.arange(200.0).reshape(200, 1)
PAIRS = list(zip(INPUTS.split(37), torch.zeros(200).long().split(37), strict=True))


def drawn_with(seed: int, count: int) -> TrainingSample:
    return draw_sample(changed(make_job(nn.Linear(1, 2), PAIRS, 1), seed=seed), count)


@pytest.mark.parametrize("count", [1, 30, 200, 1000])
def test_the_sample_is_uniform_without_repeats(count: int) -> None:
    drawn = drawn_with(0, count)
    assert drawn.total == 200
    assert len(drawn.data) == min(count, 200)
    assert (drawn.data.inputs[:, 0].diff() > 0).all(), "in the loader's order, each once"
    assert torch.equal(drawn_with(0, count).data.inputs, drawn.data.inputs)
    if count == 30:
        means = [float(drawn_with(seed, count).data.inputs.mean()) for seed in range(100)]
        assert np.mean(means) == pytest.approx(99.5, abs=4)


@pytest.mark.parametrize("count", [1, 30, 150, 200, 1000])
def test_a_smaller_sample_is_part_of_a_larger_one(count: int) -> None:
    """Whether it is drawn alone, read from the loader, or taken from what is in memory."""
    context = selection_context(nn.Linear(1, 2), PAIRS, 1)
    held = holding(context, 150)

    def values(sample: Sample) -> Tensor:
        return torch.cat(list(sample.inputs("")))

    alone = draw_sample(context.job, count).data.inputs
    assert torch.equal(values(Sample.of(context, count)), alone)
    assert torch.equal(values(Sample.of(held, count)), alone)


def test_the_data_are_read_once_for_what_is_in_memory() -> None:
    passes: list[int] = []

    def read() -> list[tuple[Tensor, Tensor]]:
        passes.append(1)
        return PAIRS

    context = selection_context(nn.Linear(1, 2), Reread(read), 1)
    passes.clear()
    held = holding(context, 50)
    for examples in (50, 20):
        list(Sample.of(held, examples).inputs(""))
    assert holding(held, 20) is held
    assert len(passes) == 1


def test_memory_limits_the_sample() -> None:
    job = changed(make_job(nn.Linear(1, 2), PAIRS, 1), memory_bytes=4 * 25 * MEMORY_SHARE)
    drawn = draw_sample(job, 100)
    assert len(drawn.data) == 25
    assert drawn.holds(100)
    assert not drawn.holds(101)
