"""The candidates of `auto`: a few strategies and random live weights, each in several places of the network."""

from dataclasses import replace

import torch

from offline.selection.auto.context import AutoContext, Place, Proposal
from offline.selection.auto.places import cost_limit, drawn
from offline.selection.auto.price import PriceModel
from offline.selection.context import TooFewWeights
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
    prices = context.prices
    at_random = [_random(context, prices, place) for place in places]
    costs = [prices.cheapest(proposal.subnetwork.indices) for proposal in at_random]
    limit = cost_limit(context.job.config, context.job.size, [place.name for place in places], costs)
    proposals = []
    for place, proposal, cost in zip(places, at_random, costs, strict=True):
        if cost <= limit:
            proposals += [proposal, *_by_strategies(context, prices, place)]
    variants = [variant for proposal in _different(proposals) for variant in _variants(proposal, prices)]
    return tuple(variant for variant in variants if variant.forward_passes <= limit)


def _random(context: AutoContext, prices: PriceModel, place: Place) -> Proposal:
    """All of the live weights, or S of them uniformly at random without replacement."""
    live = place.among(context.live).positions
    positions = drawn(live, context.job.size, context.job.config.seed)
    amount = "all" if len(positions) == len(live) else "random"
    dead = len(place.positions) - len(live)
    chosen = Subnetwork(positions, dead, None, "random", {"live_only": True}, place.modules)
    return _proposal(prices, f"{amount} live weights of {place.name}", chosen)


def _proposal(prices: PriceModel, name: str, subnetwork: Subnetwork) -> Proposal:
    """With the first of the rules."""
    rule = prices.job.rules[0]
    return Proposal(name, subnetwork, prices.predict(subnetwork.indices, rule), rule)


def _variants(proposal: Proposal, prices: PriceModel) -> list[Proposal]:
    """The proposal, and the same weights with fewer variances where each of them takes a backward pass."""
    indices, name = proposal.subnetwork.indices, proposal.name
    cheaper = prices.job.rules[1:] if prices.touched(indices).one_by_one else ()
    others = [
        replace(proposal, name=f"{name}, {r.kind}", forward_passes=prices.predict(indices, r), rule=r) for r in cheaper
    ]
    return [proposal, *others]


def _by_strategies(context: AutoContext, prices: PriceModel, place: Place) -> list[Proposal]:
    """Nothing where all weights of the place are taken anyway."""
    live = len(place.among(context.live).positions)
    size, found = min(context.job.size, live), list[Proposal]()
    if size == live and place.modules is not None:
        return []
    for strategy in context.options.strategies:
        chosen = _at_most(context, strategy, size, place)
        if chosen is None:
            continue
        dead = len(place.positions) - live + (chosen.dead_weights or 0)
        name = strategy if place.modules is None else f"{strategy} in {place.name}"
        found.append(_proposal(prices, name, replace(chosen, dead_weights=dead)))
    return found


def _at_most(context: AutoContext, strategy: str, size: int, place: Place) -> Subnetwork | None:
    """What a strategy chooses; fewer weights, or None, where fewer live on its sample of the training data, which is
    smaller than the one that tells which weights live."""
    try:
        return context.select(strategy, size, context.options, place.modules)
    except TooFewWeights as error:
        if not error.available:
            return None
        return context.select(strategy, error.available, context.options, place.modules)


def _different(proposals: list[Proposal]) -> list[Proposal]:
    kept: list[Proposal] = []
    for proposal in proposals:
        if not any(torch.equal(proposal.subnetwork.indices, other.subnetwork.indices) for other in kept):
            kept.append(proposal)
    return kept
