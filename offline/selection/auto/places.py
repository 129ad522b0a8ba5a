"""The places of the network in which `auto` looks for weights: those where a prediction costs at most `max_cost`.

A place is the last module, the last few, the last quarter or half of them, the layers whose features reach a linear
head separately, or the whole network. What costs too much is left out before anything is differentiated. With little
effort (`FitConfig.effort`), so is every place in which a derivative takes a backward pass for each output; a network
where all do has its last modules.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from offline.config import FitConfig
from offline.job import Job
from offline.network.call_order import CallOrder
from offline.network.weights import parameter_owners
from offline.selection.auto.context import USUAL_COST, Place
from offline.selection.auto.price import PriceModel
from offline.selection.context import SelectionContext

DEPTHS = (1, 2, 3, 5, 8)  # how many of the last modules
LEEWAY = 1.5  # of what costs more than is usual anyway: other weights of the same place are about as dear
QUICK_PLACES = 2  # of a network in which every place needs backward passes for the outputs


class Affordable(NamedTuple):
    """The places to look in, the cheap end first, the prices by which they are known, and whether little effort leaves
    out others."""

    places: tuple[Place, ...]
    prices: PriceModel
    left_out: bool


def affordable_places(context: SelectionContext) -> Affordable:
    """The places of the candidate weights where S of them, drawn at random, cost at most the limit.

    Raises `ValueError` where no place is as cheap as `max_cost` demands.
    """
    job, candidates = context.job, context.candidate_weights.cpu()
    prices = PriceModel.of(job, job.example[:1])
    every = _places(job, prices.order, candidates)
    costs = [prices.cheapest(drawn(place.positions, context.size, job.config.seed)) for place in every]
    open_ones = _quick(prices, every) if job.config.effort == "quick" else [True] * len(every)
    searched = [(place, cost) for place, cost, is_open in zip(every, costs, open_ones, strict=True) if is_open]
    limit = cost_limit(job.config, context.size, [place.name for place, _ in searched], [cost for _, cost in searched])
    places = tuple(place for place, cost in searched if cost <= limit)
    return Affordable(places, prices, len(places) < sum(cost <= limit for cost in costs))


def affordable_weights(context: SelectionContext) -> Tensor:
    """The candidate weights in any of the affordable places, (C,) ascending."""
    return weights_in(affordable_places(context).places)


def weights_in(places: Sequence[Place]) -> Tensor:
    """The positions of all weights in the places, ascending."""
    held = torch.zeros(1 + max(int(place.positions[-1]) for place in places), dtype=torch.bool)
    for place in places:
        held[place.positions] = True
    return held.nonzero().flatten()


def drawn(positions: Tensor, size: int, seed: int) -> Tensor:
    """`size` of the positions (n,) ascending, uniformly at random without replacement; all of them where they are no
    more."""
    if len(positions) <= size:
        return positions
    chosen = np.random.default_rng(seed).choice(positions.numpy(), size, replace=False)
    return torch.as_tensor(np.sort(chosen))


def cost_limit(config: FitConfig, size: int, names: Sequence[str], costs: Sequence[float]) -> float:
    """The most that a prediction may cost; `ValueError` where the user's limit is below the least of `costs`."""
    least = min(costs)
    if config.max_cost is None:
        return max(USUAL_COST, LEEWAY * least)
    if config.max_cost < least:
        shown, name = math.ceil(100 * least) / 100, names[costs.index(least)]
        where = f"module {name}" if name.startswith("'") else name
        raise ValueError(
            f"max_cost: found {config.max_cost:g} forward passes, expected at least {shown:g}, since random weights of "
            f"{where} cost {least:.4g} with subnetwork_size {size}; the plain network is 1 of them, and fewer weights "
            "cost less"
        )
    return config.max_cost


def _places(job: Job, order: CallOrder, candidates: Tensor) -> list[Place]:
    """From the last module with a matrix to the whole network, in call order from its end."""
    groups = order.groups()
    group_of = {p.name: groups[p.name] for p in job.layout.parameters}
    held = sorted({group_of[p.name] for p, _ in job.layout.locate(candidates)}, reverse=True)
    depths = sorted({*DEPTHS, len(held) // 4, len(held) // 2} - {0})
    chosen = [
        {name for name, group in group_of.items() if group >= held[depth - 1]} for depth in depths if depth < len(held)
    ]
    separate = _separate(job)
    if separate and separate not in chosen:
        chosen.insert(1, separate)
    places = [_place(job, order, candidates, names) for names in chosen]
    return [*(place for place in places if len(place.positions)), Place("the network", None, candidates)]


def _quick(prices: PriceModel, places: Sequence[Place]) -> list[bool]:
    """In which places one backward pass gives the derivatives of all outputs; where in none, the first few."""
    closed = [prices.touched(place.positions).is_closed for place in places]
    return closed if any(closed) else [number < QUICK_PLACES for number in range(len(places))]


def _separate(job: Job) -> set[str]:
    """Parameters of the head, and of the layers whose features reach it separately; none without such layers."""
    head, owners = job.head, parameter_owners(job.network)
    if head is None or not head.separate:
        return set()
    paths = {head.path, *head.separate}
    return {p.name for p in job.layout.parameters if {path for path, _ in owners[p.name]} <= paths}


def _place(job: Job, order: CallOrder, candidates: Tensor, names: set[str]) -> Place:
    located = [(p, inside) for p, inside in job.layout.locate(candidates) if p.name in names]
    if not located:
        return Place("", (), candidates[:0])
    inside = torch.cat([p.offset + inside for p, inside in located])
    modules = _modules(job, {p.name for p, _ in located})
    first = min(modules, key=_call_of(order))
    return Place(f"{first!r}" if len(modules) == 1 else f"{first!r} and after it", modules, inside)


def _modules(job: Job, names: set[str]) -> tuple[str, ...]:
    """Paths of the modules that hold the parameters."""
    owners = parameter_owners(job.network)
    return tuple(sorted({path for name in names for path, _ in owners[name]}))


def _call_of(order: CallOrder) -> Callable[[str], tuple[int, str]]:
    """A module's first call, for comparisons; ties by the path."""
    first = {call.path: place for place, call in reversed(list(enumerate(order.calls)))}
    return lambda path: (first.get(path, len(order.calls)), path)
