"""The places of the network in which `auto` looks for weights: those where a prediction is cheap.

A place is the last module, the layers whose features reach a linear head separately, the last few, the last quarter or
half of the modules, or the whole network. Each place holds the ones before it, but for the separate layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..job import Job
from ..network.call_order import CallOrder
from ..network.weights import parameter_owners
from .context import SelectionContext
from .price import PriceModel

USUAL_COST = 3.0  # forward passes
DEPTHS = (1, 2, 3, 5, 8)  # how many of the last modules
LEEWAY = 1.5  # times what a single weight costs, where that is more than usual


@dataclass(frozen=True)
class Place:
    """Where weights may be chosen: a name for people, the modules (None: the whole network), the positions of the
    weights inside, (n,) ascending, and what a prediction with so many of them costs, in forward passes."""

    name: str
    modules: tuple[str, ...] | None
    positions: Tensor
    cost: float


@dataclass(frozen=True)
class Affordable:
    """The places to choose in, the last module first, and how many weights: S, or as many as the limit allows."""

    places: tuple[Place, ...]
    size: int


def affordable_places(context: SelectionContext) -> Affordable:
    """The places where the weights, drawn at random, cost at most the limit: S of them, or where no place is as cheap,
    half as many, and so on."""
    job, candidates = context.job, context.candidate_weights.cpu()
    prices = PriceModel.of(job, job.example[:1])
    named = _places(job, prices.order, candidates)

    def priced(size: int) -> list[Place]:
        each = (drawn(positions, size, job.config.seed) for _, _, positions in named)
        return [Place(*place, prices.predict(some)) for place, some in zip(named, each, strict=True)]

    limit, size = _limit(priced(1)), context.size
    while not (places := tuple(place for place in priced(size) if place.cost <= limit)):
        size //= 2
    return Affordable(places, size)


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


def _limit(places: Sequence[Place]) -> float:
    """The most that a prediction may cost; places: with a single weight each."""
    return max(USUAL_COST, LEEWAY * min(place.cost for place in places))


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
