"""What weights are chosen from: a trained network and its data, as a fit has them.

Scores look at the first 256 training digits; lambda is scaled accordingly.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from probity.offline.config import FitConfig
from probity.offline.data.held_out import HeldOut
from probity.offline.data.loaders import Passes
from probity.offline.job import Job, prepare
from probity.offline.runtime.distributed import DistributedContext
from probity.offline.runtime.progress import silent
from probity.offline.selection.candidate_weights import candidate_positions
from probity.offline.selection.context import SelectionContext
from probity.offline.selection.live_weights import is_live
from probity.offline.selection.registry import select
from probity.offline.selection.streaming import curvature_diagonal

SCORED, NOVEL, ROWS = 256, 32, 32
SWAG_EXAMPLES, SWAG_SNAPSHOTS = 2000, 12
WEIGHT_DECAY = 5e-4  # of the training: lambda of the full posterior is N times this
MEMORY = 512 * 2**20


@dataclass(frozen=True)
class Material:
    """A trained network, its training data and its held-out data; size S of the subnetworks."""

    model: nn.Module
    inputs: Tensor
    targets: Tensor
    held_out: HeldOut
    size: int
    seed: int

    @cached_property
    def job(self) -> Job:
        """A fit that scores 256 digits."""
        decay = WEIGHT_DECAY * min(SCORED, len(self.inputs))
        config = FitConfig(subnetwork_size=self.size, seed=self.seed, prior_precision=decay)
        return prepare(self.model, self.pairs(SCORED), config, torch.device("cpu"), DistributedContext(), silent)

    @cached_property
    def context(self) -> SelectionContext:
        """Among the weights of layers without biases and normalisation."""
        return SelectionContext(
            self.job, self.size, candidate_positions(self.job.network, self.job.layout, None, "weights"), MEMORY
        )

    @cached_property
    def living(self) -> SelectionContext:
        """The same, among live weights only."""
        curvature = curvature_diagonal(self.context, self.context.candidate_weights)
        return replace(self.context, candidate_weights=self.context.candidate_weights[is_live(curvature)])

    def pairs(self, examples: int) -> list[tuple[Tensor, Tensor]]:
        return list(
            zip(torch.split(self.inputs[:examples], ROWS), torch.split(self.targets[:examples], ROWS), strict=True)
        )


def reading(job: Job, pairs: list[tuple[Tensor, Tensor]]) -> Job:
    """The same job with other training data."""
    return replace(job, train=pairs, passes=Passes("train_loader"))


def swag(material: Material) -> Tensor:
    """Positions by `wasserstein-swag`."""
    context = replace(material.context, job=reading(material.job, material.pairs(SWAG_EXAMPLES)))
    return select("wasserstein-swag", context, {"snapshots": SWAG_SNAPSHOTS}).indices
