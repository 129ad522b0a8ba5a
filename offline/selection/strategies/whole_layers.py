"""Strategies that take all there is: every candidate of the last layer, or of all layers."""

import torch
from torch import Tensor

from ..candidate_weights import positions_of
from ..context import SelectionContext
from ..live_weights import eligible
from ..subnetwork import Subnetwork


def last_layer(context: SelectionContext, live_only: bool = False) -> Subnetwork:
    """Every candidate of the module that is called last and has any; at most S.

    Raises `ValueError` where S is smaller than that, or no module with candidates is called.
    """
    path, names = _last_called(context)
    return _whole(context, names, f"the last layer {path!r}", live_only)


def every(context: SelectionContext, live_only: bool = False) -> Subnetwork:
    """Every candidate; at most S. Raises `ValueError` where S is smaller than that."""
    return _whole(context, None, "what may be chosen", live_only)


def _whole(context: SelectionContext, names: set[str] | None, what: str, live_only: bool) -> Subnetwork:
    """All candidates of the parameters `names` (None: of all), if they are at most S."""
    positions, dead = eligible(context, live_only)
    inside = positions_of([p for p in context.job.layout.parameters if names is None or p.name in names])
    chosen = inside[torch.isin(inside, positions)]
    if len(chosen) > context.size:
        raise ValueError(
            f"subnetwork_size: found {context.size}, {what} has {len(chosen)} weights; raise it to {len(chosen)}, or "
            "choose selection='random'"
        )
    return Subnetwork(chosen, dead)


def _last_called(context: SelectionContext) -> tuple[str, set[str]]:
    """Path and parameter names of the last module called in a forward pass that has candidates of its own."""
    among = {p.name for p, _ in context.job.layout.locate(context.candidate_weights)}
    first_name = {id(tensor): name for name, tensor in context.job.network.named_parameters()}
    calls: list[tuple[str, set[str]]] = []
    handles = []
    for path, module in context.job.network.named_modules():
        names = {first_name[id(tensor)] for tensor in module.parameters(recurse=False)} & among
        if names:
            handles.append(module.register_forward_pre_hook(lambda *_, here=(path, names): calls.append(here)))
    try:
        _forward(context)
    finally:
        for handle in handles:
            handle.remove()
    if not calls:
        raise ValueError(
            "selection='last-layer': no module with weights that may be chosen was called; choose another strategy"
        )
    return calls[-1]


def _forward(context: SelectionContext) -> Tensor:
    with torch.no_grad():
        inputs, _ = next(iter(context.job.pass_over_training()))
        output: Tensor = context.job.network(inputs[:1])
        return output
