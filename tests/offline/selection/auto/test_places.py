"""Places that cost too much are left out before any work; the others share what they have in common."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from offline.selection.auto.context import AutoOptions
from offline.selection.auto.places import affordable_places, affordable_weights, drawn
from offline.selection.context import SelectionContext
from offline.selection.registry import select_candidate, sharing_squares
from offline.selection.squared_derivatives import pooled, squared_derivatives
from tests.support.auto_selection import image_data, image_network
from tests.support.selections import changed
from tests.support.selections import context as selection_context


def context_of(**changes: Any) -> SelectionContext:
    torch.manual_seed(0)
    inputs, targets = image_data(60, 0)
    train = list(zip(inputs.split(25), targets.split(25), strict=True))
    return selection_context(image_network(), train, 20, 4, **{"effort": "thorough", **changes})


def test_places_hold_one_another_and_the_limit_cuts_the_dear_end() -> None:
    every, prices, _ = affordable_places(context_of(max_cost=1000.0))
    assert [place.modules for place in every] == [("8",), ("6", "8"), ("3", "6", "8"), None]
    for inner, outer in pairwise(every):
        assert len(inner.positions) < len(outer.positions)
        assert torch.isin(inner.positions, outer.positions).all()
    costs = [prices.cheapest(drawn(place.positions, 20, 0)) for place in every]
    limit = (costs[1] + costs[2]) / 2
    cheap, _, _ = affordable_places(context_of(max_cost=limit))
    assert [place.name for place in cheap] == [place.name for place in every[:2]]
    assert torch.equal(affordable_weights(context_of(max_cost=limit)), cheap[-1].positions)


def test_weights_that_may_not_be_chosen_are_in_no_place() -> None:
    given = context_of(max_cost=1000.0)
    first = torch.arange(given.job.layout.parameters[0].size)
    places, _, _ = affordable_places(replace(given, candidate_weights=first))
    assert [place.modules for place in places] == [None]
    assert torch.equal(places[0].positions, first)


def test_a_pool_is_uniform_and_that_of_a_part_agrees() -> None:
    given = context_of()
    everything = given.candidate_weights
    part = everything[500:1500]
    whole_pool, part_pool = pooled(given, everything, 300), pooled(given, part, 200)
    assert len(whole_pool) == 300
    assert len(part_pool) == 200
    common = whole_pool[torch.isin(whole_pool, part)]
    assert torch.isin(common, part_pool).all()
    assert torch.equal(pooled(given, everything, None), everything)
    other = pooled(replace(given, job=changed(given.job, seed=1)), everything, 300)
    assert not torch.equal(other, whole_pool)
    assert float(whole_pool.double().mean()) == pytest.approx(len(everything) / 2, rel=0.1)


@pytest.mark.parametrize("strategy", ["gradient", "novelty-sampling"])
@pytest.mark.parametrize("pool", [1, 20_000])
def test_shared_derivatives_choose_the_same_weights(strategy: str, pool: int) -> None:
    """As the strategy alone, which differentiates for itself; the options of the choice give it again."""
    given, options = context_of(max_cost=1000.0), AutoOptions(pool=pool)
    places, _, _ = affordable_places(given)
    sharing = sharing_squares(given, places, options)
    for place in places[1:]:
        shared = select_candidate(sharing, strategy, 20, options, place.modules)
        alone = select_candidate(given, strategy, 20, options, place.modules)
        assert torch.equal(shared.indices, alone.indices)
        assert shared.options == alone.options
        assert ("pool" in shared.options) == (pool == 1 and len(place.positions) > 200)


def test_each_example_is_differentiated_once_for_all_places() -> None:
    described: list[str] = []

    def track(items: Iterable[Any], description: str, total: int | None = None) -> Iterator[Any]:
        described.append(description)
        yield from items

    given = context_of(max_cost=1000.0)
    given = replace(given, job=replace(given.job, track=track))
    options = AutoOptions()
    sharing = sharing_squares(given, affordable_places(given).places, options)
    for place in affordable_places(given).places[1:]:
        select_candidate(sharing, "novelty-sampling", 20, options, place.modules)
    derivatives = [name for name in described if name.startswith("Squared derivatives")]
    assert len(derivatives) == len(set(derivatives)) == 7
    assert described.count("Outputs under shift") == 1


def test_shared_derivatives_are_those_of_the_weights_asked_for() -> None:
    given = context_of(max_cost=1000.0)
    sharing = sharing_squares(given, affordable_places(given).places, AutoOptions())
    positions: Tensor = given.candidate_weights[100:900:7]
    for shift in (None, "blur"):
        torch.testing.assert_close(
            squared_derivatives(sharing, positions, 30, shift), squared_derivatives(given, positions, 30, shift)
        )
