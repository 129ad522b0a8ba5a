"""Selection strategies: functions `(context, **options) -> Subnetwork`, named in `demur.offline.selection.registry`."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from .candidate_weights import common, positions_of
from .context import SelectionContext, choose_largest, size_within
from .live_weights import eligible, live_candidates, split_live
from .places import affordable_places, drawn, weights_in
from .streaming import curvature_diagonal
from .subnetwork import Subnetwork

EXAMPLES = 1000  # of the training data, to tell which weights live


def last_layers(context: SelectionContext) -> Subnetwork:
    """`auto`: S live weights of the last layers at random, or as many as there are, or as the price allows.

    The places of the network are tried from its end, and the first one with enough live weights is taken, among those
    where a prediction costs at most three forward passes, by a count (`demur.offline.selection.price`); where no place
    is as cheap, fewer weights are taken. Near the end, derivatives cost next to nothing; and which of the live weights
    are chosen makes no difference that shows beside added weights: a comparison of strategies on held-out data, judged
    by synthetic shifts, gained nothing beyond the noise of three seeds.

    Raises `ValueError` where no weight has curvature.
    """
    affordable, job = affordable_places(context), context.job
    places, size = affordable.places, affordable.size
    live, dead = live_candidates(replace(context, candidate_weights=weights_in(places)), EXAMPLES)
    if not len(live):
        raise ValueError(
            f"selection='auto': found {dead} weights and none with curvature on the training data, expected at least "
            "one; no choice of weights would change a prediction, as where logits are so large that every softmax is "
            "flat"
        )
    found = [(place, common(place.positions, live.cpu())) for place in places]
    place, inside = next((pair for pair in found if len(pair[1]) >= size), max(found, key=lambda pair: len(pair[1])))
    chosen = drawn(inside, size, job.config.seed)
    amount = "all" if len(chosen) == len(inside) else "random"
    fewer = f"; {context.size} weights would cost more than is usual" if size < context.size else ""
    return Subnetwork(
        chosen,
        len(place.positions) - len(inside),
        f"{amount} live weights of {place.name}, about {place.cost:.1f} forward passes an example, by a count{fewer}",
        within=place.modules,
    )


def random_weights(context: SelectionContext, live_only: bool = False) -> Subnetwork:
    """Uniformly at random without replacement among the candidates, or among those with curvature."""
    positions, dead = eligible(context, live_only)
    size = size_within(context, len(positions), dead)
    chosen = np.random.default_rng(context.job.config.seed).choice(positions.numpy(), size, replace=False)
    return Subnetwork(torch.as_tensor(np.sort(chosen)), dead)


def wasserstein_laplace(context: SelectionContext) -> Subnetwork:
    """Largest 1 / (diag(H)_d + lambda), the marginal variance of a diagonal Laplace posterior: smallest curvature.

    Under an independence assumption these minimise the 2-Wasserstein distance to the full posterior (Daxberger et al.
    2021, section 4). Dead weights have the prior's variance, the largest there is, and are always left out and counted.
    """
    curvature = curvature_diagonal(context, context.candidate_weights)
    live, positions, dead = split_live(context, curvature)
    return choose_largest(context, positions, -curvature[live], dead)


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
