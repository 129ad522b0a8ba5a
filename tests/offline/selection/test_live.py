"""Which weights live, by one backward pass a batch, against the diagonal of the curvature."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from demur.offline.selection.live_weights import curvature_estimate, eligible, live_candidates
from tests import reference
from tests.support.cases import Case
from tests.support.selections import DEAD, case_context, cases, changed, context, dead_problem, problem, truth

SEEDS = 300


@cases
def test_the_estimate_is_right_on_average(case: Case) -> None:
    """Within five standard errors everywhere; a sum of squares of normals has a variance of twice its square."""
    _, precision = truth(case.name, prior=0.0, noise=1.0)
    expected = np.diag(precision)
    given = case_context(case, 1)
    found = np.mean(
        [curvature_estimate(replace(given, job=changed(given.job, seed=seed))).numpy() for seed in range(SEEDS)], axis=0
    )
    np.testing.assert_array_less(np.abs(found - expected), 5 * np.sqrt(2 / SEEDS) * expected + 1e-9 * expected.max())


@pytest.mark.parametrize("memory", [2**12, 2**26])
def test_dead_weights_are_told_apart(memory: int) -> None:
    given = context(*dead_problem(), 5, memory_bytes=memory)
    live, dead = live_candidates(given)
    assert set(range(26)) - set(live.tolist()) == DEAD
    assert dead == len(DEAD)


def test_only_candidates_are_looked_at() -> None:
    given = context(*dead_problem(), 5, candidate_weights=torch.tensor([1, 6, 7, 20, 22, 25]))
    live, dead = live_candidates(given)
    assert live.tolist() == [1, 20, 25]
    assert dead == 3
    assert eligible(given, False)[1] is None


def test_a_tied_weight_lives_where_either_use_does() -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = nn.Sequential(first, nn.ReLU(), second)
    with torch.no_grad():
        first.bias.fill_(-100.0)
    given = context(model, [(torch.randn(8, 4), torch.randint(0, 4, (8,)))], 1, outputs=4)
    live, _ = live_candidates(given)
    jacobian = reference.full_jacobian(model, next(given.job.pass_over_training())[0])[1]
    assert live.tolist() == np.flatnonzero(np.abs(jacobian).max((0, 1)) > 0).tolist()


def test_the_network_and_the_generator_come_back_as_they_were() -> None:
    given = context(*problem(), 3)
    before, state = {k: v.clone() for k, v in given.job.network.state_dict().items()}, torch.get_rng_state()
    live_candidates(given)
    assert all(torch.equal(before[k], v) for k, v in given.job.network.state_dict().items())
    assert not any(p.requires_grad for p in given.job.network.parameters())
    assert torch.equal(torch.get_rng_state(), state)
