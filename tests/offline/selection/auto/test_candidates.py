"""The candidates of `auto`: which weights, and what they cost to serve."""

from dataclasses import replace

import pytest
import torch

from offline.selection.auto.candidates import propose
from offline.selection.auto.context import AutoOptions
from offline.selection.candidate_weights import candidate_positions
from offline.selection.context import SelectionContext
from offline.selection.strategies.baselines import random_weights
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
    # multiply-adds: 54 * 64 of the first convolution, then 432 * 16, 128 * 12 and 48
    parts = [54 * 64, 432 * 16, 1536, 48]
    shares = [0.0, parts[3] / sum(parts), (parts[2] + parts[3]) / sum(parts), sum(parts[1:]) / sum(parts)]
    for proposal, share in zip(proposals, shares, strict=True):
        assert proposal.forward_passes == pytest.approx(1 + 4 * share)
        assert len(proposal.subnetwork.indices) == 20
        assert torch.isin(proposal.subnetwork.indices, context.live).all()
        assert proposal.subnetwork.dead_weights == context.dead_weights


def test_fewer_live_weights_than_asked_for_are_all_taken() -> None:
    context = context_of("images", size=300, strategies=())
    last = propose(context)[0]
    assert last.name == "all live weights of '8'"
    assert len(last.subnetwork.indices) <= 52
    inside = [i for i in context.live.tolist() if i >= context.job.layout.total - 52]
    assert last.subnetwork.indices.tolist() == inside


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
