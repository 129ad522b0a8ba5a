"""Strategies that take whole layers: every candidate of the last layer, of named modules, of named parameters."""

from collections.abc import Sequence

import torch
from torch import Tensor

from probity.offline.selection.candidate_weights import check_names, module_parameters, positions_of, unknown_name
from probity.offline.selection.context import SelectionContext
from probity.offline.selection.live_weights import eligible
from probity.offline.selection.subnetwork import Subnetwork

NAMES = "selection_options['names']"


def last_layer(context: SelectionContext, live_only: bool = False) -> Subnetwork:
    """Every candidate of the module that is called last and has any; at most S.

    Raises `ValueError` where S is smaller than that, or no module with candidates is called.
    """
    path, names = _last_called(context)
    return _whole(context, names, f"the last layer {path!r}", live_only)


def modules(context: SelectionContext, names: Sequence[str] = (), live_only: bool = False) -> Subnetwork:
    """Every candidate of the modules at the paths `names` and of their submodules; at most S.

    Raises `ValueError` for an unknown path, no candidate in these modules, or an S that is too small.
    """
    inside = module_parameters(context.job.network, context.job.layout, names, NAMES)
    return _whole(context, set(inside), f"the modules {', '.join(names)}", live_only)


def parameters(context: SelectionContext, names: Sequence[str] = (), live_only: bool = False) -> Subnetwork:
    """Every candidate of the parameters `names` ("layer4.1.conv2.weight"; any name of a tied one); at most S.

    Raises `ValueError` for an unknown or frozen parameter, no candidate among these, or an S that is too small.
    """
    check_names(names, NAMES, "names of parameters")
    first = {id(tensor): name for name, tensor in context.job.network.named_parameters()}
    trainable = {p.name for p in context.job.layout.parameters}
    known = {
        name: first[id(tensor)]
        for name, tensor in context.job.network.named_parameters(remove_duplicate=False)
        if first[id(tensor)] in trainable
    }
    for name in names:
        if name not in known:
            raise unknown_name(name, NAMES, "a trainable parameter", list(known))
    return _whole(context, {known[name] for name in names}, f"the parameters {', '.join(names)}", live_only)


def _whole(context: SelectionContext, names: set[str], what: str, live_only: bool) -> Subnetwork:
    """All candidates of the parameters `names`, if they are at most S."""
    positions, dead = eligible(context, live_only)
    inside = positions_of([p for p in context.job.layout.parameters if p.name in names])
    chosen = inside[torch.isin(inside, positions)]
    if not len(chosen):
        raise ValueError(f"selection: found no weight that may be chosen in {what}, expected at least one; name others")
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
