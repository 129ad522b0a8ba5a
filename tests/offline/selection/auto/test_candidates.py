"""The candidates of `auto`: which weights, and what they cost to serve."""

import re
from dataclasses import replace

import pytest
import torch

from offline.selection.auto.candidates import propose
from offline.selection.auto.context import AutoOptions, Names
from offline.selection.candidate_weights import candidate_positions
from offline.selection.context import SelectionContext, check_size
from offline.selection.strategies.baselines import random_weights
from offline.selection.subnetwork import Subnetwork
from tests.support.auto_selection import context_of


def test_the_cheap_end_comes_first_and_costs_less() -> None:
    context = context_of("images", size=20, strategies=())
    proposals = propose(context)
    assert [p.name for p in proposals] == [
        "random live weights of '8'",
        "random live weights of '6' and after it",
        "random live weights of '3' and after it",
        "random live weights of the network",
    ]
    costs = [proposal.forward_passes for proposal in proposals]
    assert 1 < costs[0] < costs[1] < costs[2] < costs[3]
    for proposal in proposals:
        assert proposal.forward_passes == context.prices.predict(proposal.subnetwork.indices, proposal.rule)
        assert len(proposal.subnetwork.indices) == 20
        assert torch.isin(proposal.subnetwork.indices, context.live).all()
        (place,) = (place for place in context.places if place.modules == proposal.subnetwork.within)
        dead = ~torch.isin(place.positions, context.live)
        assert proposal.subnetwork.dead_weights == int(dead.sum())


def test_without_a_limit_what_costs_more_than_three_passes_is_not_tried() -> None:
    """All weights of the network cost K n^2 multiply-adds, 5 million."""
    every, cheap = (propose(context_of("images", size=1200, max_cost=limit)) for limit in (1000.0, None))
    assert max(proposal.forward_passes for proposal in every) > 3
    assert [p.name for p in cheap] == [p.name for p in every if p.forward_passes <= 3]


def test_a_limit_below_the_cheapest_place_names_what_can_be_had() -> None:
    expected = "expected at least 1.1, since random weights of module '8' cost 1.095 with subnetwork_size 20"
    with pytest.raises(ValueError, match=re.escape(expected)):
        propose(context_of("images", size=20, max_cost=1.0))


def test_a_strategy_in_a_place_chooses_there_and_can_be_repeated() -> None:
    context = context_of("images", size=20, strategies=("novelty-sampling",))
    (inside,) = (p for p in propose(context) if p.name == "novelty-sampling in '6' and after it")
    modules = inside.subnetwork.within
    assert modules == ("6", "8")
    positions = candidate_positions(context.job.network, context.job.layout, modules, "all")
    assert torch.isin(inside.subnetwork.indices, positions).all()
    again = context.select("novelty-sampling", 20, context.options, modules)
    assert torch.equal(again.indices, inside.subnetwork.indices)


def test_fewer_live_weights_than_asked_for_are_all_taken() -> None:
    context = context_of("images", size=300, strategies=())
    last = propose(context)[0]
    assert last.name == "all live weights of '8'"
    assert len(last.subnetwork.indices) <= 52
    inside = [i for i in context.live.tolist() if i >= context.job.layout.total - 52]
    assert last.subnetwork.indices.tolist() == inside


@pytest.mark.parametrize(("available", "sizes"), [(5, {5}), (0, set())])
def test_a_strategy_that_sees_fewer_live_weights_chooses_as_many(available: int, sizes: set[int]) -> None:
    """Novelty looks at 256 training examples; fewer weights may live on these than on the 4,000 that tell which do."""
    context = context_of("images", size=20, strategies=("novelty-sampling",))

    def select(strategy: str, size: int, options: AutoOptions, within: Names) -> Subnetwork:
        check_size(size, available, 20 - available)
        return context.select(strategy, size, options, within)

    found = [p for p in propose(replace(context, select=select)) if p.name.startswith("novelty")]
    assert {len(proposal.subnetwork.indices) for proposal in found} == sizes


@pytest.mark.parametrize("size", [10, 300])
def test_strategy_options_and_modules_give_the_weights_again(size: int) -> None:
    context = context_of("table", size=size, strategies=())
    for proposal in propose(context):
        candidates = candidate_positions(context.job.network, context.job.layout, proposal.subnetwork.within, "all")
        given = SelectionContext(context.job, len(proposal.subnetwork.indices), candidates, 2**26)
        again = random_weights(given, **proposal.subnetwork.options)
        assert proposal.subnetwork.strategy == "random"
        assert torch.equal(again.indices, proposal.subnetwork.indices)


def test_the_same_weights_are_tried_once() -> None:
    context = context_of("table", strategies=("random", "random"), size=10)
    proposals = propose(context)
    assert len({tuple(p.subnetwork.indices.tolist()) for p in proposals}) == len(proposals)


def test_only_permitted_weights_are_drawn() -> None:
    context = context_of("images")
    permitted = context.live[context.live >= 60]
    proposals = propose(replace(context, live=permitted, options=AutoOptions(strategies=())))
    assert all(torch.isin(p.subnetwork.indices, permitted).all() for p in proposals)


def test_what_may_not_be_chosen_is_not_named() -> None:
    """Live weights restricted to the first layers: no proposal says that later ones were open."""
    given = context_of("table")
    first = given.job.layout.parameters[0].size + given.job.layout.parameters[1].size
    proposals = propose(replace(given, live=given.live[given.live < first]))
    assert all(
        proposal.subnetwork.within in (None, ("0",))
        for proposal in proposals
        if proposal.subnetwork.strategy == "random"
    )
