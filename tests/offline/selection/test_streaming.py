"""Statistics over all candidates: streamed within the memory, over a sample drawn by the seed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from demur.offline.runtime.peak_memory import peak_bytes
from demur.offline.selection.live_weights import Sample
from demur.offline.selection.streaming import curvature_diagonal, groups
from tests.support.cases import Case
from tests.support.networks import build
from tests.support.selections import CASE, PRIOR, Reread, case_context, cases, changed, context, dead_problem, truth

# --------------------------------------------------------------------------- streamed statistics


@cases
def test_the_curvature_diagonal_equals_the_reference(case: Case) -> None:
    _, precision = truth(case.name, noise=1.0)
    given = case_context(case, 1)
    expected = np.diag(precision) - PRIOR
    found = curvature_diagonal(given, given.candidate_weights)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-10)


@cases
@pytest.mark.parametrize("memory", [8_000, 100_000])
def test_statistics_are_the_same_with_any_memory(case: Case, memory: int) -> None:
    wide, narrow = case_context(case, 1), case_context(case, 1, memory_bytes=memory)
    positions = wide.candidate_weights[::2]
    found, expected = (curvature_diagonal(given, positions) for given in (narrow, wide))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-12)


def test_candidates_are_cut_only_where_a_parameter_is_too_wide() -> None:
    given = case_context(CASE["mlp-classification-2"], 1)  # parameters of 36, 9, 63, 7, 14 and 2 weights
    entry = 48 * 2
    for width, lengths in ((63, [131]), (62, [107, 24]), (30, [30, 45, 30, 26]), (200, [131])):
        parts = groups(replace(given, memory_bytes=entry * width), given.candidate_weights)
        assert [len(part) for part in parts] == lengths
        assert torch.equal(torch.cat(parts), given.candidate_weights)


@pytest.mark.parametrize("memory", [2_000_000, 8_000_000])
def test_strategies_stay_within_the_memory(memory: int) -> None:
    """Beside vectors of D numbers; without a bound, 60 examples' Jacobians of one layer alone take 11 MB."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 100), nn.Tanh(), nn.Linear(100, 45), nn.Tanh(), nn.Linear(45, 10))
    batches = [(torch.randn(60, 20), torch.randint(0, 10, (60,)))]
    given = context(model, batches, 1, outputs=10, memory_bytes=memory)
    peak = peak_bytes(lambda: curvature_diagonal(given, given.candidate_weights))
    assert peak <= memory + 8 * 8 * given.job.layout.total


@pytest.mark.parametrize("name", ["tied", "called-twice", "scaled", "attention", "recurrent"])
def test_any_network_may_be_taken_in_parts(name: str) -> None:
    """Norms, ties, bare parameters and recurrence: the plan of the whole holds for its parts."""
    model, inputs, _ = build(name)
    outputs = model(inputs).shape[1]
    wide = context(model, [(inputs, torch.zeros(len(inputs)).long())], 1, outputs=outputs)
    narrow = replace(wide, memory_bytes=48 * outputs * 20)
    assert len(groups(narrow, narrow.candidate_weights)) > 1
    found, expected = (curvature_diagonal(given, given.candidate_weights) for given in (narrow, wide))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-9)


# --------------------------------------------------------------------------- samples


@pytest.mark.parametrize("examples", [1, 10, 299, 300, 1000])
def test_a_sample_is_drawn_once_and_without_replacement(examples: int) -> None:
    inputs = torch.arange(300.0).unsqueeze(1)
    given = context(nn.Linear(1, 2), [(x, torch.zeros(len(x)).long()) for x in inputs.split(41)], 1)
    sample = Sample.of(given, examples)
    first, second = (list(sample.inputs("")) for _ in range(2))
    values = torch.cat(first).flatten()
    assert torch.equal(values, torch.cat(second).flatten())
    assert len(values) == min(300, examples)
    assert bool((values.diff() > 0).all())
    assert [len(part) for part in first[:-1]] == [128] * (len(first) - 1)
    assert 1 <= len(first[-1]) <= 128


def test_a_sample_is_uniform() -> None:
    batches = [(torch.arange(20.0).unsqueeze(1), torch.zeros(20).long())]
    drawn = [torch.cat(list(Sample.of(context(nn.Linear(1, 2), batches, 1, seed=s), 5).inputs(""))) for s in range(200)]
    counts = torch.bincount(torch.cat(drawn).flatten().long(), minlength=20)
    assert counts.min() >= 25  # expected 50, standard deviation 6.1
    assert counts.max() <= 75


def test_a_loader_that_grows_is_an_error() -> None:
    model, batches = dead_problem()
    passes = iter([batches, batches + batches])
    given = context(model, batches, 1)
    given = replace(given, job=changed(given.job, train=Reread(lambda: next(passes))))
    with pytest.raises(ValueError, match="train_loader: found 24 examples or more, expected 16 as in the first pass"):
        list(Sample.of(given, 10).inputs(""))
