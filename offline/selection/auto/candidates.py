"""The candidates of `auto`: a few strategies, and random live weights of the network and of its last modules."""

import numpy as np
import torch
from torch import Tensor

from offline.network.call_order import CallOrder
from offline.network.weights import parameter_owners
from offline.selection.auto.context import AutoContext, Proposal
from offline.selection.candidate_weights import positions_of
from offline.selection.subnetwork import Subnetwork

DEPTHS = (1, 2, 3, 5, 8)  # how many of the last modules


def propose(context: AutoContext) -> tuple[Proposal, ...]:
    """Every candidate once, the cheap end first: where two choose the same weights, the later one is left out.

    Raises `ValueError` when no weight has curvature.
    """
    if not len(context.live):
        raise ValueError(
            f"selection='auto': found {context.dead_weights} weights and none with curvature on the training data, "
            "expected at least one; no choice of weights would change a prediction"
        )
    order = CallOrder.of(context.job.network, context.tuning.inputs[:1])
    size = min(context.job.size, len(context.live))
    proposals = [*_cheap_end(context, order), _drawn(context, order, "the network", context.live, None)]
    for strategy in context.options.strategies:
        chosen = context.select(strategy, size, context.options.shifts)
        proposals.append(_proposal(context, order, strategy, chosen))
    return _different(proposals)


def _cheap_end(context: AutoContext, order: CallOrder) -> list[Proposal]:
    """Live weights of the last one, two, three ... modules with a matrix, in call order."""
    group_of = {p.name: order.groups()[p.name] for p in context.job.layout.parameters}
    groups = sorted({group_of[name] for name in _names(context, context.live)}, reverse=True)
    proposals = []
    for depth in (depth for depth in DEPTHS if depth < len(groups)):
        names = {name for name, group in group_of.items() if group >= groups[depth - 1]}
        positions = positions_of([p for p in context.job.layout.parameters if p.name in names])
        inside = context.live.cpu()[torch.isin(context.live.cpu(), positions)]
        modules = _modules(context, set(_names(context, inside)))
        first = min(modules, key=lambda path: _begins(order, path))
        where = f"{first!r}" if len(modules) == 1 else f"{first!r} and after it"
        proposals.append(_drawn(context, order, where, inside, modules))
    return proposals


def _drawn(
    context: AutoContext, order: CallOrder, where: str, positions: Tensor, within: tuple[str, ...] | None
) -> Proposal:
    """All of the live `positions`, or S of them uniformly at random without replacement."""
    positions = positions.cpu()
    amount = "all" if len(positions) <= context.job.size else "random"
    if amount == "random":
        generator = np.random.default_rng(context.job.config.seed)
        positions = torch.as_tensor(np.sort(generator.choice(positions.numpy(), context.job.size, replace=False)))
    drawn = Subnetwork(positions, context.dead_weights, None, "random", {"live_only": True}, within)
    return _proposal(context, order, f"{amount} live weights of {where}", drawn)


def _proposal(context: AutoContext, order: CallOrder, name: str, subnetwork: Subnetwork) -> Proposal:
    return Proposal(
        name, subnetwork, order.forward_passes(_names(context, subnetwork.indices), context.job.likelihood.outputs)
    )


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
