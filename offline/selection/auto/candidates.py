"""The candidates of `auto`: a few strategies and random live weights, each in several places of the network."""

from dataclasses import replace

import torch

from offline.selection.auto.context import AutoContext, Place, Proposal
from offline.selection.auto.places import cost_limit, drawn
from offline.selection.auto.price import PriceModel
from offline.selection.subnetwork import Subnetwork


def propose(context: AutoContext) -> tuple[Proposal, ...]:
    """Every candidate once, the cheap end first: where two choose the same weights, the later one is left out.

    Raises `ValueError` when no weight has curvature, or no place is as cheap as `max_cost` demands.
    """
    places = [place for place in context.places if len(place.among(context.live).positions)]
    if not places:
        raise ValueError(
            f"selection='auto': found {context.dead_weights} weights and none with curvature on the training data, "
            "expected at least one; no choice of weights would change a prediction"
        )
    prices = PriceModel.of(context.job, context.job.example[:1])
    at_random = [_random(context, prices, place) for place in places]
    costs = [proposal.forward_passes for proposal in at_random]
    limit = cost_limit(context.job.config, context.job.size, [place.name for place in places], costs)
    proposals = []
    for place, proposal in zip(places, at_random, strict=True):
        if proposal.forward_passes <= limit:
            proposals += [proposal, *_by_strategies(context, prices, place)]
    return _different([proposal for proposal in proposals if proposal.forward_passes <= limit])


def _random(context: AutoContext, prices: PriceModel, place: Place) -> Proposal:
    """All of the live weights, or S of them uniformly at random without replacement."""
    live = place.among(context.live).positions
    positions = drawn(live, context.job.size, context.job.config.seed)
    amount = "all" if len(positions) == len(live) else "random"
    dead = len(place.positions) - len(live)
    chosen = Subnetwork(positions, dead, None, "random", {"live_only": True}, place.modules)
    return Proposal(f"{amount} live weights of {place.name}", chosen, prices.predict(positions))


def _by_strategies(context: AutoContext, prices: PriceModel, place: Place) -> list[Proposal]:
    """Nothing where all weights of the place are taken anyway."""
    live = len(place.among(context.live).positions)
    size, found = min(context.job.size, live), list[Proposal]()
    if size == live and place.modules is not None:
        return []
    for strategy in context.options.strategies:
        chosen = context.select(strategy, size, context.options, place.modules)
        dead = len(place.positions) - live + (chosen.dead_weights or 0)
        name = strategy if place.modules is None else f"{strategy} in {place.name}"
        found.append(Proposal(name, replace(chosen, dead_weights=dead), prices.predict(chosen.indices)))
    return found


def _different(proposals: list[Proposal]) -> tuple[Proposal, ...]:
    kept: list[Proposal] = []
    for proposal in proposals:
        if not any(torch.equal(proposal.subnetwork.indices, other.subnetwork.indices) for other in kept):
            kept.append(proposal)
    return tuple(kept)
