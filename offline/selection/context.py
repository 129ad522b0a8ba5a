"""What every strategy is given."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from offline.data.likelihood import Likelihood
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.network.weights import WeightLayout
from offline.runtime.arrays import Array
from offline.runtime.progress import Track
from offline.selection.subnetwork import Subnetwork


@dataclass(frozen=True)
class SelectionContext:
    """What a strategy may use.

    network: in eval mode with frozen parameters; it must come back as it was. weights (D,). size: S. candidates (C,)
    int64 ascending: the positions that may be chosen at all. prior_precision: lambda of the full posterior.
    prior_scaling: whether a subnetwork's is lambda S / D ("subnetwork") or lambda ("none"). sigma_noise (regression):
    observation noise; None estimates it from the residuals on the training data. `batches()` starts a pass over the
    training data; `jacobian(positions)` is that of ascending positions. memory_bytes: what a strategy may take beside
    vectors of D numbers.
    """

    network: nn.Module
    layout: WeightLayout
    weights: Tensor
    size: int
    outputs: int
    seed: int
    likelihood: Likelihood
    batches: Callable[[], Iterable[tuple[Tensor, Tensor]]]
    jacobian: Callable[[Tensor], SubnetworkJacobian]
    candidates: Tensor
    prior_precision: float
    memory_bytes: int
    track: Track
    sigma_noise: float | None = None
    prior_scaling: Literal["subnetwork", "none"] = "subnetwork"


def largest(scores: Array, size: int) -> Tensor:
    """Positions of the `size` largest scores, ascending; ties go to the smaller position."""
    order = np.argsort(-scores, kind="stable")[:size]
    return torch.as_tensor(np.sort(order))


def choose_largest(
    context: SelectionContext,
    positions: Tensor,
    scores: Tensor,
    dead: int | None = None,
    explanation: str | None = None,
) -> Subnetwork:
    """The S of `positions` (C,) ascending with the largest scores (C,).

    Raises `ValueError` for fewer than S positions.
    """
    check_size(context.size, len(positions), dead)
    return Subnetwork(positions[largest(scores.cpu().numpy(), context.size)], dead, explanation)


def check_size(size: int, available: int, dead: int | None = None) -> None:
    """`ValueError` when S is larger than the candidates, or than those that live."""
    if size <= available:
        return
    if dead:
        raise ValueError(
            f"subnetwork_size: found {size}, expected at most {available}: the other {dead} weights have no curvature "
            "on the training data (dead ReLUs) and would change no prediction; give a smaller one"
        )
    raise ValueError(
        f"subnetwork_size: found {size}, expected at most the {available} weights that may be chosen; give a smaller "
        "one, or leave more of the network to choose from"
    )
