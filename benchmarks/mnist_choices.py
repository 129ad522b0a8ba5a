"""Which weights each strategy takes in the MNIST experiment: the strategies of the offline job, by name.

Scores look at the first 256 training digits; lambda is scaled accordingly. All strategies choose among the weights of
convolutional and linear layers that live (have curvature on those digits), except where a name says otherwise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from offline.data.held_out import HeldOut
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.jacobian.plan import make_jacobian
from offline.laplace.prior import prior_share
from offline.network.model_copy import private_copy
from offline.network.weights import WeightLayout
from offline.runtime.progress import silent
from offline.selection.auto.choose import choose_automatically
from offline.selection.auto.context import AutoContext
from offline.selection.candidates import candidate_positions
from offline.selection.context import SelectionContext
from offline.selection.live_weights import is_live
from offline.selection.registry import select
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
    def context(self) -> SelectionContext:
        """For scores on 256 digits, among the weights of layers without biases and normalisation."""
        network, layout = private_copy(self.model, torch.device("cpu")), WeightLayout.of(self.model)
        return SelectionContext(
            network=network,
            layout=layout,
            weights=layout.flatten(dict(network.named_parameters())),
            size=self.size,
            outputs=10,
            seed=self.seed,
            likelihood="classification",
            batches=lambda: self.pairs(SCORED),
            jacobian=self.jacobian,
            candidates=candidate_positions(network, layout, None, "weights"),
            prior_precision=WEIGHT_DECAY * min(SCORED, len(self.inputs)),
            memory_bytes=MEMORY,
            track=silent,
        )

    @cached_property
    def living(self) -> SelectionContext:
        """The same, among live weights only."""
        curvature = curvature_diagonal(self.context, self.context.candidates)
        return replace(self.context, candidates=self.context.candidates[is_live(curvature)])

    def jacobian(self, indices: Tensor) -> SubnetworkJacobian:
        return make_jacobian(self.context.network, self.context.layout, indices, self.inputs[:2])

    def pairs(self, examples: int) -> list[tuple[Tensor, Tensor]]:
        return list(
            zip(torch.split(self.inputs[:examples], ROWS), torch.split(self.targets[:examples], ROWS), strict=True)
        )

    def inside(self, modules: tuple[str, ...]) -> SelectionContext:
        """Live weights of these modules."""
        kept = candidate_positions(self.context.network, self.context.layout, modules, "weights")
        return replace(self.living, candidates=kept[torch.isin(kept, self.living.candidates)])


def swag(material: Material) -> Tensor:
    context = replace(material.context, batches=lambda: material.pairs(SWAG_EXAMPLES))
    return select("wasserstein-swag", context, {"snapshots": SWAG_SNAPSHOTS}).indices


def auto(material: Material, judged: int, training: int, shifts: tuple[str, ...] | None) -> Subnetwork:
    """The offline job's own choice, on part of the held-out data; `shifts`: those that it is told of, None: none."""
    context = material.living

    def choice(strategy: str, options: Mapping[str, Any], size: int) -> Subnetwork:
        extra = {"examples": NOVEL} if strategy == "novelty-sampling" else {}
        return select(strategy, replace(context, size=size), {**options, **extra})

    total = context.layout.total
    return choose_automatically(
        AutoContext(
            network=context.network,
            layout=context.layout,
            live=context.candidates,
            dead_weights=len(material.context.candidates) - len(context.candidates),
            size=material.size,
            outputs=10,
            seed=material.seed,
            likelihood="classification",
            batches=lambda: material.pairs(len(material.inputs)),
            tuning=material.held_out,
            jacobian=material.jacobian,
            select=choice,
            share=lambda size: prior_share(size, total, "subnetwork"),
            shifts=shifts,
            judged_examples=judged,
            training_examples=training,
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
