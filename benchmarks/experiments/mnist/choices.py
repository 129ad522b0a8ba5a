"""The weights that each strategy of the offline job chooses in the MNIST experiment.

Scores look at the first 256 training digits; lambda is scaled accordingly. All strategies choose among the weights of
convolutional and linear layers that live (have curvature on those digits), except where a name says otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from offline.config import FitConfig
from offline.data.held_out import HeldOut
from offline.data.loaders import Passes
from offline.job import Job, prepare
from offline.runtime.distributed import DistributedContext
from offline.runtime.progress import silent
from offline.selection.auto.choose import choose_automatically
from offline.selection.auto.context import AutoContext, AutoOptions, Names
from offline.selection.auto.places import affordable_places
from offline.selection.candidate_weights import candidate_positions
from offline.selection.context import SelectionContext
from offline.selection.live_weights import is_live
from offline.selection.registry import STRATEGIES, select
from offline.selection.streaming import curvature_diagonal
from offline.selection.subnetwork import Subnetwork

SCORED, NOVEL, ROWS = 256, 32, 32
SWAG_EXAMPLES, SWAG_SNAPSHOTS = 2000, 12
POOL = 2048
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
        config = FitConfig(subnetwork_size=self.size, effort="thorough", seed=self.seed, prior_precision=decay)
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

    def inside(self, modules: tuple[str, ...]) -> SelectionContext:
        """Live weights of these modules."""
        kept = candidate_positions(self.job.network, self.job.layout, modules, "weights")
        return replace(self.living, candidate_weights=kept[torch.isin(kept, self.living.candidate_weights)])


def reading(job: Job, pairs: list[tuple[Tensor, Tensor]]) -> Job:
    """The same job with other training data."""
    return replace(job, train=pairs, passes=Passes("train_loader"))


def swag(material: Material) -> Tensor:
    context = replace(material.context, job=reading(material.job, material.pairs(SWAG_EXAMPLES)))
    return select("wasserstein-swag", context, {"snapshots": SWAG_SNAPSHOTS}).indices


def auto(material: Material, judged: int, training: int, shifts: tuple[str, ...] | None) -> Subnetwork:
    """The offline job's own choice, on part of the held-out data; `shifts`: those that it is told of, None: none."""
    context = material.living
    places, prices, _ = affordable_places(context)

    def choice(strategy: str, size: int, options: AutoOptions, within: Names) -> Subnetwork:
        extra: dict[str, Any] = {"examples": NOVEL} if strategy == "novelty-sampling" else {}
        if options.shifts is not None and STRATEGIES[strategy].shifts:
            extra["shifts"] = list(options.shifts)
        return select(strategy, replace(context, size=size).inside(within), extra)

    return choose_automatically(
        AutoContext(
            job=reading(material.job, material.pairs(len(material.inputs))),
            tuning=material.held_out,
            places=places,
            prices=prices,
            live=context.candidate_weights,
            dead_weights=len(material.context.candidate_weights) - len(context.candidate_weights),
            select=choice,
            options=AutoOptions(shifts=shifts, judged_examples=judged, training_examples=training),
        )
    )


def strategies(last_block: tuple[str, ...]) -> dict[str, Callable[[Material], Tensor]]:
    """Name -> the weights that it takes; `last_block`: the modules of the last block, then the head."""

    def living(name: str, **options: Any) -> Callable[[Material], Tensor]:
        return lambda m: select(name, m.living, options).indices

    return {
        "wasserstein-swag": swag,
        "wasserstein-laplace": living("wasserstein-laplace"),
        "gradient": living("gradient"),
        "novelty": living("novelty", examples=NOVEL),
        "novelty-sampling": living("novelty-sampling", examples=NOVEL),
        "leverage": living("leverage"),
        "greedy": living("greedy", pool=POOL),
        "magnitude": living("magnitude"),
        "random": lambda m: select("random", m.context, {}).indices,
        "random live": living("random"),
        "random live, last block + head": lambda m: select("random", m.inside(last_block), {}).indices,
        "random live, head": lambda m: select("random", m.inside(last_block[-1:]), {}).indices,
        "last-layer": lambda m: select("last-layer", m.context, {}).indices,
    }
