"""The places of the network in which `auto` looks for weights: those where a prediction costs at most `max_cost`.

A place is the last module, the layers whose features reach a linear head separately, the last few, the last quarter or
half of the modules, or the whole network. Each place holds the ones before it, but for the separate layers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offline.config import FitConfig
from offline.job import Job
from offline.network.call_order import CallOrder
from offline.network.weights import parameter_owners
from offline.selection.context import SelectionContext
from offline.selection.price import PriceModel

USUAL_COST = 3.0  # forward passes, where the user gives no limit
DEPTHS = (1, 2, 3, 5, 8)  # how many of the last modules
LEEWAY = 1.5  # of what costs more than is usual anyway: other weights of the same place are about as dear


@dataclass(frozen=True)
class Place:
    """Where weights may be chosen: a name for people, the modules (None: the whole network), the positions of the
    weights inside, (n,) ascending, and what a prediction with S of them costs, in forward passes."""

    name: str
    modules: tuple[str, ...] | None
    positions: Tensor
    cost: float


def affordable_places(context: SelectionContext) -> tuple[Place, ...]:
    """The places where S of the candidate weights, drawn at random, cost at most the limit, the last module first.

    Raises `ValueError` where no place is as cheap as `max_cost` demands.
    """
    job, candidates = context.job, context.candidate_weights.cpu()
    prices = PriceModel.of(job, job.example[:1])
    places = [
        Place(name, modules, positions, prices.predict(drawn(positions, context.size, job.config.seed), job.rule))
        for name, modules, positions in _places(job, prices.order, candidates)
    ]
    limit = _limit(job.config, context.size, places)
    return tuple(place for place in places if place.cost <= limit)


def affordable_weights(context: SelectionContext) -> Tensor:
    """The candidate weights in any of the affordable places, (C,) ascending."""
    return weights_in(affordable_places(context))


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


def _limit(config: FitConfig, size: int, places: Sequence[Place]) -> float:
    """The most that a prediction may cost; `ValueError` where the user's limit is below the cheapest place."""
    cheapest = min(places, key=lambda place: place.cost)
    if config.max_cost is None:
        return max(USUAL_COST, LEEWAY * cheapest.cost)
    if config.max_cost < cheapest.cost:
        shown, name = math.ceil(100 * cheapest.cost) / 100, cheapest.name
        where = f"module {name}" if name.startswith("'") else name
        raise ValueError(
            f"max_cost: found {config.max_cost:g} forward passes, expected at least {shown:g}, since random weights of "
            f"{where} cost {cheapest.cost:.4g} with subnetwork_size {size}; the plain network is 1 of them, and fewer "
            "weights cost less"
        )
    return config.max_cost


def _places(job: Job, order: CallOrder, candidates: Tensor) -> list[tuple[str, tuple[str, ...] | None, Tensor]]:
    """Names, modules and positions, from the last module with a matrix to the whole network, in call order from its
    end."""
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
    return [*(place for place in places if len(place[2])), ("the network", None, candidates)]


def _separate(job: Job) -> set[str]:
    """Parameters of the head, and of the layers whose features reach it separately; none without such layers."""
    head, owners = job.head, parameter_owners(job.network)
    if head is None or not head.separate:
        return set()
    paths = {head.path, *head.separate}
    return {p.name for p in job.layout.parameters if {path for path, _ in owners[p.name]} <= paths}


def _place(
    job: Job, order: CallOrder, candidates: Tensor, names: set[str]
) -> tuple[str, tuple[str, ...] | None, Tensor]:
    located = [(p, inside) for p, inside in job.layout.locate(candidates) if p.name in names]
    if not located:
        return "", (), candidates[:0]
    inside = torch.cat([p.offset + inside for p, inside in located])
    modules = _modules(job, {p.name for p, _ in located})
    first = min(modules, key=_call_of(order))
    return f"{first!r}" if len(modules) == 1 else f"{first!r} and after it", modules, inside


def _modules(job: Job, names: set[str]) -> tuple[str, ...]:
    """Paths of the modules that hold the parameters."""
    owners = parameter_owners(job.network)
    return tuple(sorted({path for name in names for path, _ in owners[name]}))


def _call_of(order: CallOrder) -> Callable[[str], tuple[int, str]]:
    """A module's first call, for comparisons; ties by the path."""
    first = {call.path: place for place, call in reversed(list(enumerate(order.calls)))}
    return lambda path: (first.get(path, len(order.calls)), path)
