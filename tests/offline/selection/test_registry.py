"""What holds for every strategy: size, order, candidates, determinism, dead weights, the network untouched."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from demur.offline.selection.context import SelectionContext, largest
from demur.offline.selection.registry import check_options, select
from tests.support.networks import hooks_of
from tests.support.selections import ALWAYS_LIVE, DEAD, NAMED, OPTIONS, WHOLE, context, dead_problem, problem

strategies = pytest.mark.parametrize("strategy", NAMED)
ranking = pytest.mark.parametrize("strategy", sorted(set(NAMED) - WHOLE))


WHOLE_SIZE = {"last-layer": 12, "all": 65}


def live(strategy: str) -> dict[str, Any]:
    """Options by which it leaves dead weights out."""
    return OPTIONS[strategy] | ({} if strategy in ALWAYS_LIVE else {"live_only": True})


@pytest.mark.parametrize("size", [12, 30])
@strategies
def test_indices_are_ascending_and_as_many_as_asked_for(strategy: str, size: int) -> None:
    indices = select(strategy, context(*problem(), WHOLE_SIZE.get(strategy, size)), OPTIONS[strategy]).indices
    assert indices.dtype == torch.int64
    assert len(indices) == WHOLE_SIZE.get(strategy, size)
    assert bool((indices.diff() > 0).all())
    assert 0 <= int(indices[0]) <= int(indices[-1]) < 65


@strategies
def test_only_candidates_are_chosen(strategy: str) -> None:
    candidates = torch.arange(1, 65, 3)
    size = 22 if strategy in WHOLE else 9
    indices = select(strategy, context(*problem(), size, candidate_weights=candidates), OPTIONS[strategy]).indices
    assert set(indices.tolist()) <= set(candidates.tolist())
    assert len(indices) == {"last-layer": 4, "all": 22}.get(strategy, 9)


@ranking
def test_all_candidates_can_be_chosen(strategy: str) -> None:
    candidates = torch.arange(1, 65, 3)
    indices = select(strategy, context(*problem(), 22, candidate_weights=candidates), OPTIONS[strategy]).indices
    assert torch.equal(indices, candidates)


@ranking
def test_more_weights_than_candidates_is_an_error(strategy: str) -> None:
    given = context(*problem(), 23, candidate_weights=torch.arange(1, 65, 3))
    with pytest.raises(
        ValueError, match=r"subnetwork_size: found 23, expected at most the 22 weights .* give a smaller"
    ):
        select(strategy, given, OPTIONS[strategy])


@strategies
def test_the_same_seed_gives_the_same_indices(strategy: str) -> None:
    first, second = (
        select(strategy, context(*problem(), WHOLE_SIZE.get(strategy, 12)), OPTIONS[strategy]) for _ in range(2)
    )
    assert torch.equal(first.indices, second.indices)
    assert first.dead_weights == second.dead_weights


def test_another_seed_gives_other_indices() -> None:
    found = {tuple(select("random", context(*problem(), 12, seed=s), {}).indices.tolist()) for s in range(4)}
    assert len(found) > 1


@strategies
def test_the_network_comes_back_as_it_was(strategy: str) -> None:
    given = context(*problem(), WHOLE_SIZE.get(strategy, 12))
    before = {name: tensor.clone() for name, tensor in given.job.network.state_dict().items()}
    generator = torch.random.get_rng_state()
    select(strategy, given, OPTIONS[strategy])
    after = given.job.network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(p.requires_grad or p.grad is not None for p in given.job.network.parameters())
    assert not any(module.training for module in given.job.network.modules())
    assert not any(hooks_of(given.job.network))
    assert torch.equal(generator, torch.random.get_rng_state())


@strategies
def test_an_unknown_option_is_named(strategy: str) -> None:
    with pytest.raises(ValueError, match=f"selection_options: found 'snap'.*, expected .* for selection='{strategy}'"):
        check_options(strategy, {"snap": 3})


@pytest.mark.parametrize(
    ("strategy", "options", "words"),
    [
        ("random", {"live_onli": True}, r"'live_onli' \(did you mean 'live_only'\?\), expected live_only"),
        ("random", {"live_only": "yes"}, r"selection_options\['live_only'\]: found 'yes', expected true or false"),
        ("wasserstein-swag", {"snapshots": 1}, "found 1, expected a number greater than or equal to 2"),
        ("wasserstein-swag", {"snapshots": 2.5}, "found 2.5, expected a whole number"),
        ("wasserstein-swag", {"learning_rate": 0.0}, "found 0.0, expected a number greater than 0"),
        ("wasserstein-swag", {"learning_rate": float("nan")}, "found nan, expected a"),
        ("wasserstein-swag", {"momentum": 1.0}, "found 1.0, expected a number less than 1"),
        ("wasserstein-swag", {"weight_decay": -0.1}, "found -0.1, expected a number greater than or equal to 0"),
        ("wasserstein-swag", {"seed": -1}, "found -1, expected a number greater than or equal to 0"),
        ("wasserstein-swag", {"learning_rate": "fast"}, "found 'fast', expected a finite number"),
        (
            "wasserstein-swag",
            {"schedule": "cyclical"},
            "found 'cyclical'.*, expected",
        ),
    ],
)
def test_a_wrong_value_is_named_without_a_network(strategy: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_options(strategy, options)


@pytest.mark.parametrize("count", [0, -3, 2.5, "all", True])
def test_a_number_is_checked(count: object) -> None:
    with pytest.raises(ValueError, match=rf"selection_options\['snapshots'\]: found {count!r}, expected a"):
        check_options("wasserstein-swag", {"snapshots": count})


@strategies
def test_every_usual_option_is_taken(strategy: str) -> None:
    check_options(strategy, OPTIONS.get(strategy, {}))


# --------------------------------------------------------------------------- dead weights


@pytest.mark.parametrize("size", [1, 7, 20])
@ranking
def test_dead_weights_are_left_out_and_counted(strategy: str, size: int) -> None:
    found = select(strategy, context(*dead_problem(), size), live(strategy))
    assert found.dead_weights == len(DEAD)
    assert len(found.indices) == size
    assert not set(found.indices.tolist()) & DEAD


@pytest.mark.parametrize("strategy", sorted(ALWAYS_LIVE))
def test_some_strategies_always_leave_them_out(strategy: str) -> None:
    found = select(strategy, context(*dead_problem(), 20), {})
    assert found.dead_weights == len(DEAD)
    assert not set(found.indices.tolist()) & DEAD


@pytest.mark.parametrize("strategy", sorted(set(NAMED) - WHOLE - ALWAYS_LIVE))
def test_the_others_may_take_all_weights(strategy: str) -> None:
    found = select(strategy, context(*dead_problem(), 26), OPTIONS[strategy])
    assert found.dead_weights is None
    assert found.indices.tolist() == list(range(26))


@pytest.mark.parametrize(("strategy", "first"), [("last-layer", 16), ("all", 0)])
def test_dead_weights_of_whole_layers_are_left_out_when_asked(strategy: str, first: int) -> None:
    found = select(strategy, context(*dead_problem(), 26), {"live_only": True})
    assert found.indices.tolist() == sorted(set(range(first, 26)) - DEAD)
    assert found.dead_weights == len(DEAD)


def test_dead_weights_are_counted_among_the_candidates() -> None:
    found = select("random", context(*dead_problem(), 3, candidate_weights=torch.arange(5, 12)), {"live_only": True})
    assert found.dead_weights == 3
    assert set(found.indices.tolist()) < {5, 9, 10, 11}


@ranking
def test_more_weights_than_live_ones_is_an_error(strategy: str) -> None:
    with pytest.raises(ValueError, match="found 21, expected at most 20: the other 6 weights have no curvature"):
        select(strategy, context(*dead_problem(), 21), live(strategy))


# --------------------------------------------------------------------------- ties


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ties_go_to_the_smaller_index(size: int) -> None:
    expected = {1: [1], 2: [1, 2], 3: [1, 2, 4], 5: [0, 1, 2, 3, 4]}
    assert largest(np.array([1.0, 2.0, 2.0, 0.0, 2.0]), size).tolist() == expected[size]


@given(arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([0.0, 1.0, 2.0, 3.5])), st.data())
def test_the_largest_are_those_that_sorting_by_score_and_index_gives(scores: np.ndarray, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(scores)))
    expected = sorted(range(len(scores)), key=lambda d: (-scores[d], d))[:size]
    assert largest(scores, size).tolist() == sorted(expected)


# --------------------------------------------------------------------------- functions of the user's own


def every_so_many(context: SelectionContext, step: int = 5) -> list[int]:
    return context.candidate_weights[::step].tolist()


def test_a_function_chooses_by_itself() -> None:
    given = context(*problem(), 13)
    found = select(every_so_many, given, {})
    assert found.indices.tolist() == list(range(0, 65, 5))
    assert found.strategy == "every_so_many()"
    assert select(every_so_many, given, {"step": 10}).options == {"step": 10}
    with pytest.raises(ValueError, match=r"found 'stride' .*, expected step for selection='every_so_many\(\)'"):
        check_options(every_so_many, {"stride": 2})


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([0, 0], "expected different positions"),
        ([65], "expected different positions"),
        ([], "at least one"),
        ([0.5], "expected different positions"),
        (torch.ones(65, dtype=torch.bool), "expected different positions"),
        (list(range(14)), "found 14 positions, expected at most subnetwork_size, 13"),
    ],
    ids=["twice", "beyond", "none", "fractions", "a mask", "too many"],
)
def test_what_a_function_must_not_return(chosen: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"selection: .*{message}"):
        select(lambda context: chosen, context(*problem(), 13), {})


@ranking
def test_a_size_that_nobody_asked_for_is_a_limit(strategy: str) -> None:
    given = replace(context(*dead_problem(), 21), limit=True)
    assert len(select(strategy, given, live(strategy)).indices) == 20
