"""The candidates of `auto`: a few strategies and random live weights, each in several places of the network.

A place is the last module, the last few, the last quarter or half of them, the layers whose features reach a linear
head separately, or the whole network. Only places where a prediction costs at most `max_cost` are tried.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offline.network.call_order import CallOrder
from offline.network.weights import parameter_owners
from offline.selection.auto.context import USUAL_COST, AutoContext, Names, Proposal
from offline.selection.auto.price import PriceModel
from offline.selection.candidate_weights import positions_of
from offline.selection.subnetwork import Subnetwork

DEPTHS = (1, 2, 3, 5, 8)  # how many of the last modules


@dataclass(frozen=True)
class Place:
    """Where weights may be chosen: a name for people, the modules (None: the whole network), and the live positions
    inside, (n,) ascending."""

    name: str
    modules: Names
    live: Tensor


def propose(context: AutoContext) -> tuple[Proposal, ...]:
    """Every candidate once, the cheap end first: where two choose the same weights, the later one is left out.

    Raises `ValueError` when no weight has curvature, or no place is as cheap as `max_cost` demands.
    """
    if not len(context.live):
        raise ValueError(
            f"selection='auto': found {context.dead_weights} weights and none with curvature on the training data, "
            "expected at least one; no choice of weights would change a prediction"
        )
    prices = PriceModel.of(context.job, context.tuning.inputs[:1])
    drawn = [(place, _drawn(context, prices, place)) for place in _places(context, prices.order)]
    limit = _limit(context, [proposal for _, proposal in drawn])
    proposals = []
    for place, proposal in drawn:
        if proposal.forward_passes <= limit:
            proposals += [proposal, *_by_strategies(context, prices, place)]
    kept = [proposal for proposal in proposals if proposal.forward_passes <= limit]
    return _different(kept)


def _limit(context: AutoContext, drawn: list[Proposal]) -> float:
    """The most that a prediction may cost; `ValueError` where the user's limit is below the cheapest place."""
    given, least = context.job.config.max_cost, min(proposal.forward_passes for proposal in drawn)
    if given is not None and given < least:
        cheapest = min(drawn, key=lambda proposal: proposal.forward_passes)
        raise ValueError(
            f"max_cost: found {given:g} forward passes, expected at least {least:.3g}, which {cheapest.name} cost with "
            f"subnetwork_size {len(cheapest.subnetwork.indices)}; fewer weights cost less"
        )
    return given if given is not None else max(USUAL_COST, least)


def _places(context: AutoContext, order: CallOrder) -> list[Place]:
    """From the last module with a matrix to the whole network, in call order from its end."""
    groups = order.groups()
    group_of = {p.name: groups[p.name] for p in context.job.layout.parameters}
    alive = sorted({group_of[name] for name in _names(context, context.live)}, reverse=True)
    depths = sorted({*DEPTHS, len(alive) // 4, len(alive) // 2} - {0})
    chosen = [
        {name for name, group in group_of.items() if group >= alive[depth - 1]}
        for depth in depths
        if depth < len(alive)
    ]
    separate = _separate(context)
    if separate and separate not in chosen:
        chosen.insert(1, separate)
    places = [_place(context, order, names) for names in chosen]
    return [*(place for place in places if len(place.live)), Place("the network", None, context.live.cpu())]


def _separate(context: AutoContext) -> set[str]:
    """Parameters of the head, and of the layers whose features reach it separately; none without such layers."""
    head, owners = context.job.head, parameter_owners(context.job.network)
    if head is None or not head.separate:
        return set()
    paths = {head.path, *head.separate}
    return {p.name for p in context.job.layout.parameters if {path for path, _ in owners[p.name]} <= paths}


def _place(context: AutoContext, order: CallOrder, names: set[str]) -> Place:
    positions = positions_of([p for p in context.job.layout.parameters if p.name in names])
    live = context.live.cpu()
    inside = live[torch.isin(live, positions)]
    modules = _modules(context, set(_names(context, inside)))
    if not modules:
        return Place("", (), inside)
    first = min(modules, key=lambda path: _begins(order, path))
    return Place(f"{first!r}" if len(modules) == 1 else f"{first!r} and after it", modules, inside)


def _drawn(context: AutoContext, prices: PriceModel, place: Place) -> Proposal:
    """All of the live weights, or S of them uniformly at random without replacement."""
    positions = place.live
    amount = "all" if len(positions) <= context.job.size else "random"
    if amount == "random":
        generator = np.random.default_rng(context.job.config.seed)
        positions = torch.as_tensor(np.sort(generator.choice(positions.numpy(), context.job.size, replace=False)))
    drawn = Subnetwork(positions, context.dead_weights, None, "random", {"live_only": True}, place.modules)
    return Proposal(f"{amount} live weights of {place.name}", drawn, prices.predict(positions))


def _by_strategies(context: AutoContext, prices: PriceModel, place: Place) -> list[Proposal]:
    """Nothing where all weights of the place are taken anyway."""
    size, found = min(context.job.size, len(place.live)), list[Proposal]()
    if size == len(place.live) and place.modules is not None:
        return []
    for strategy in context.options.strategies:
        chosen = context.select(strategy, size, context.options.shifts, place.modules)
        name = strategy if place.modules is None else f"{strategy} in {place.name}"
        found.append(Proposal(name, chosen, prices.predict(chosen.indices)))
    return found


def _names(context: AutoContext, indices: Tensor) -> list[str]:
    return [parameter.name for parameter, _ in context.job.layout.locate(indices.cpu())]


def _modules(context: AutoContext, names: set[str]) -> tuple[str, ...]:
    """Paths of the modules that hold the parameters."""
    owners = parameter_owners(context.job.network)
    return tuple(sorted({path for name in names for path, _ in owners[name]}))


def _begins(order: CallOrder, path: str) -> tuple[int, str]:
    places = [place for place, call in enumerate(order.calls) if call.path == path]
    return (places[0] if places else len(order.calls)), path


def _different(proposals: list[Proposal]) -> tuple[Proposal, ...]:
    kept: list[Proposal] = []
    for proposal in proposals:
        if not any(torch.equal(proposal.subnetwork.indices, other.subnetwork.indices) for other in kept):
            kept.append(proposal)
    return tuple(kept)
