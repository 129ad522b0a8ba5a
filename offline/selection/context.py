"""The input of every strategy, and the choice of the largest scores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..job import Job
from ..runtime.arrays import Array
from .candidate_weights import candidate_positions, common
from .subnetwork import Subnetwork


@dataclass(frozen=True)
class SelectionContext:
    """What a strategy may use of the job; it must leave the network unchanged.

    size: S; limit: whether fewer weights will do, as nobody asked for so many. candidate_weights (C,) int64 ascending:
    the positions that may be chosen at all. memory_bytes: what a strategy may take beside vectors of D numbers.
    """

    job: Job
    size: int
    candidate_weights: Tensor
    memory_bytes: int
    limit: bool = False

    @property
    def prior_precision(self) -> float:
        """lambda of the full posterior: 1 where it is searched for, which needs the weights first."""
        given = self.job.config.prior_precision
        return given if isinstance(given, float) else 1.0

    def inside(self, modules: Sequence[str] | None) -> "SelectionContext":
        """The same with the candidate weights inside `modules` only (None: all of them)."""
        if modules is None:
            return self
        job = self.job
        positions = candidate_positions(job.network, job.layout, modules, job.reached)
        return replace(self, candidate_weights=common(self.candidate_weights, positions))

    def batches(self, description: str) -> Iterable[tuple[Tensor, Tensor]]:
        """One pass over the training data, with progress."""
        return self.job.pass_over_training(description)


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

    Raises `ValueError` for fewer than S positions, of which all are taken where S is a limit.
    """
    size = size_within(context, len(positions), dead)
    return Subnetwork(positions[largest(scores.cpu().numpy(), size)], dead, explanation)


def size_within(context: SelectionContext, available: int, dead: int | None = None) -> int:
    """S; where that is a limit, at most `available` and at least 1. `ValueError` when S is larger than the candidates,
    or than those that live."""
    size = max(1, min(context.size, available)) if context.limit else context.size
    if size <= available:
        return size
    if dead:
        raise ValueError(
            f"subnetwork_size: found {size}, expected at most {available}: the other {dead} weights have no curvature "
            "on the training data (dead ReLUs) and would change no prediction; give a smaller one"
        )
    raise ValueError(
        f"subnetwork_size: found {size}, expected at most the {available} weights that may be chosen; give a smaller "
        "one, or leave more of the network to choose from"
    )
