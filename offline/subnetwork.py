"""Subnetwork selection: each strategy is one function that returns the ascending `subnetwork_indices`.

The paper keeps the S weights of largest marginal variance (Daxberger et al. 2021, section 4): under an independence
assumption they minimise the 2-Wasserstein distance to the full posterior. Ties go to the smaller index.
"""

import copy
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from offline.layout import WeightLayout
from offline.likelihood import Likelihood, check_targets, training_loss
from offline.progress import Track

Array = npt.NDArray[Any]
# A weight whose curvature is below this share of the largest carries none that float32 derivatives can show.
DEAD_SHARE = 1e-12


@dataclass(frozen=True)
class SelectionContext:
    """What a strategy may use. `batches()` starts a pass over the training data; `curvature_diagonal()` is diag(H).

    `network` is in eval mode with frozen parameters and must come back as it was; `weights` (D,).
    """

    network: nn.Module
    layout: WeightLayout
    weights: Tensor
    size: int
    outputs: int
    seed: int
    likelihood: Likelihood
    batches: Callable[[], Iterable[tuple[Tensor, Tensor]]]
    curvature_diagonal: Callable[[], Tensor]
    track: Track


@dataclass(frozen=True)
class SelectionResult:
    """indices (S,) int64 ascending; `dead_weights`: weights without curvature that were left out (None: not asked)."""

    indices: Tensor
    dead_weights: int | None = None


def select(strategy: str, context: SelectionContext, options: dict[str, Any]) -> SelectionResult:
    """Run a strategy by name; `ValueError` for an option it does not have."""
    function = STRATEGY_FUNCTIONS[strategy]
    known = [name for name in inspect.signature(function).parameters if name != "context"]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"selection_options: found {unknown[0]!r}, expected {', '.join(known) or 'none'} for selection={strategy!r}"
        )
    return function(context, **options)


def largest(scores: Array, size: int) -> Tensor:
    """Positions of the `size` largest scores, ascending; ties go to the smaller position."""
    order = np.argsort(-scores, kind="stable")[:size]
    return torch.as_tensor(np.sort(order))


def wasserstein_swag(
    context: SelectionContext,
    snapshots: int = 40,
    learning_rate: float = 0.01,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
) -> SelectionResult:
    """Largest variance along an SGD trajectory that starts at the trained weights: diagonal SWAG (Maddox et al. 2019).

    A copy is trained on with a constant learning rate on the mean negative log-likelihood, one snapshot an epoch;
    Var_d = E[w_d^2] - E[w_d]^2 over the snapshots. The copy stays in eval mode: dropout off, BatchNorm statistics
    fixed, so the trajectory is that of the function that will be served.
    """
    if snapshots < 2:
        raise ValueError(f"selection_options['snapshots']: found {snapshots}, expected at least 2")
    network = copy.deepcopy(context.network)
    named = dict(network.named_parameters())
    trained = [named[p.name].requires_grad_(True) for p in context.layout.parameters]
    noise_variance = _target_variance(context)
    optimiser = torch.optim.SGD(trained, lr=learning_rate, momentum=momentum, weight_decay=weight_decay)
    mean = torch.zeros(context.layout.total, dtype=torch.float64)
    squares = torch.zeros_like(mean)
    for count in context.track(range(1, snapshots + 1), "SWAG snapshots", snapshots):
        _train_epoch(network, optimiser, context, noise_variance)
        weights = context.layout.flatten(named).detach().double().cpu()
        if not bool(torch.isfinite(weights).all()):
            raise ValueError(
                f"SWAG: the weights diverged at learning_rate={learning_rate}; give a smaller one in selection_options"
            )
        delta = weights - mean  # Welford's update: no difference of large numbers
        mean += delta / count
        squares += delta * (weights - mean)
    return SelectionResult(largest((squares / snapshots).numpy(), context.size))


def _target_variance(context: SelectionContext) -> float:
    """Variance of the targets about their mean (regression): the noise scale that makes a step independent of units.

    Not the residuals': where a network fits well they are next to nothing, and every step would be too large.
    """
    if context.likelihood == "classification":
        return 1.0
    parts = [check_targets(t, context.outputs, len(x), context.likelihood) for x, t in context.batches()]
    targets = torch.cat(parts).double()
    return float((targets - targets.mean(0)).square().mean()) or 1.0


def _train_epoch(
    network: nn.Module, optimiser: torch.optim.Optimizer, context: SelectionContext, noise_variance: float
) -> None:
    for inputs, targets in context.batches():
        optimiser.zero_grad()
        with torch.enable_grad():
            output = network(inputs)
            checked = check_targets(targets, context.outputs, len(inputs), context.likelihood)
            training_loss(output, checked, context.likelihood, noise_variance).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def wasserstein_laplace(context: SelectionContext) -> SelectionResult:
    """Largest marginal variance 1 / (diag(H)_d + lambda) under a diagonal Laplace posterior, so smallest curvature.

    Weights without any curvature have the prior's variance, the largest there is, and change no prediction (the
    paper's appendix: "dead ReLUs"): they are left out and counted.
    """
    curvature = context.curvature_diagonal().numpy()
    live = _live(curvature)
    dead = int((~live).sum())
    _check_live(context.size, live, dead)
    return SelectionResult(largest(np.where(live, -curvature, -np.inf), context.size), dead)


def random_weights(context: SelectionContext, live_only: bool = False) -> SelectionResult:
    """Uniformly at random without replacement, from all weights or from those with curvature."""
    generator = np.random.default_rng(context.seed)
    live, dead = np.ones(context.layout.total, bool), None
    if live_only:
        live = _live(context.curvature_diagonal().numpy())
        dead = int((~live).sum())
        _check_live(context.size, live, dead)
    chosen = generator.choice(np.flatnonzero(live), context.size, replace=False)
    return SelectionResult(torch.as_tensor(np.sort(chosen)), dead)


def magnitude(context: SelectionContext) -> SelectionResult:
    """Largest absolute value."""
    return SelectionResult(largest(context.weights.double().abs().cpu().numpy(), context.size))


def last_layer(context: SelectionContext) -> SelectionResult:
    """Every weight of the module with trainable weights that is called last; at most `subnetwork_size`."""
    path, names = _last_called(context)
    inside = [p for p in context.layout.parameters if p.name in names]
    count = sum(p.size for p in inside)
    if count > context.size:
        raise ValueError(
            f"subnetwork_size: found {context.size}, the last layer {path!r} has {count} weights; raise it to {count}, "
            "or choose selection='random'"
        )
    return SelectionResult(torch.cat([torch.arange(p.offset, p.offset + p.size) for p in inside]))


def _last_called(context: SelectionContext) -> tuple[str, set[str]]:
    """Path and trainable parameter names of the last module called in a forward pass that has any of its own."""
    trainable = {p.name for p in context.layout.parameters}
    first_name = {id(tensor): name for name, tensor in context.network.named_parameters()}
    calls: list[tuple[str, set[str]]] = []
    handles = []
    for path, module in context.network.named_modules():
        names = {first_name[id(tensor)] for tensor in module.parameters(recurse=False)} & trainable
        if names:
            handles.append(module.register_forward_pre_hook(lambda *_, here=(path, names): calls.append(here)))
    try:
        with torch.no_grad():
            inputs, _ = next(iter(context.batches()))
            context.network(inputs[:1])
    finally:
        for handle in handles:
            handle.remove()
    if not calls:
        raise ValueError("selection='last-layer': no module with trainable weights was called; choose another strategy")
    return calls[-1]


def _live(curvature: Array) -> Array:
    result: Array = curvature > DEAD_SHARE * curvature.max(initial=0.0)
    return result


def _check_live(size: int, live: Array, dead: int) -> None:
    count = int(live.sum())
    if size > count:
        raise ValueError(
            f"subnetwork_size: found {size}, expected at most {count}: the other {dead} weights have no curvature on "
            "the training data (dead ReLUs) and would change no prediction"
        )


STRATEGY_FUNCTIONS: dict[str, Callable[..., SelectionResult]] = {
    "wasserstein-swag": wasserstein_swag,
    "wasserstein-laplace": wasserstein_laplace,
    "random": random_weights,
    "magnitude": magnitude,
    "last-layer": last_layer,
}
