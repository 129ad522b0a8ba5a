"""Which weights each strategy takes in the MNIST experiment: the strategies of the offline job, by name.

Scores look at the first 256 training digits; lambda is scaled accordingly. All strategies choose among the weights of
convolutional and linear layers that live (have curvature on those digits), except where a name says otherwise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.selection_greedy import greedy_variance
from offline.auto import AutoContext, AutoResult, choose_automatically
from offline.calibration import HeldOut
from offline.jacobians import SubnetworkJacobian, private_copy
from offline.layout import WeightLayout
from offline.likelihood import sqrt_hessian_product
from offline.plan import make_jacobian
from offline.prior import prior_share
from offline.progress import silent
from offline.shifts import synthetic_shifts
from offline.strategies.candidates import candidate_positions
from offline.strategies.context import SelectionContext, SelectionResult
from offline.strategies.live import is_live
from offline.strategies.streaming import curvature_diagonal
from offline.subnetwork import select

SCORED, NOVEL, ROWS = 256, 32, 32
SWAG_EXAMPLES, SWAG_SNAPSHOTS = 2000, 12
POOL, GREEDY_SHIFTED = 2048, 12
WEIGHT_DECAY = 5e-4  # of the training: lambda of the full posterior is N times this
LOGIT_NOISE = 8 / np.pi  # the variance that halves a logit's square under the probit link
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

    def rows(self, indices: Tensor, inputs: Tensor, weighted: bool) -> Tensor:
        """Jacobian rows (n K, S) float64, through the square root of the output Hessian where weighted."""
        jacobian = self.jacobian(indices)
        parts = []
        for chunk in torch.split(inputs, ROWS):
            mean, j = jacobian(chunk)
            parts.append(sqrt_hessian_product(j, mean, "classification") if weighted else j)
        return torch.cat(parts).flatten(0, 1).double()


def swag(material: Material) -> Tensor:
    context = replace(material.context, batches=lambda: material.pairs(SWAG_EXAMPLES))
    return select("wasserstein-swag", context, {"snapshots": SWAG_SNAPSHOTS}).indices


def greedy(material: Material) -> Tensor:
    """`greedy_variance` within a random pool of live weights, outputs of training and of shifted digits alike."""
    pool = select("random", replace(material.living, size=min(POOL, len(material.living.candidates))), {})
    h = material.rows(pool.indices, material.inputs[:SCORED], weighted=True)
    precision = h.T @ h
    share = prior_share(material.size, material.context.layout.total, "subnetwork")
    precision.diagonal().add_(material.context.prior_precision * share)
    shifted = torch.cat(list(synthetic_shifts(material.inputs[:GREEDY_SHIFTED], material.seed).values()))
    j = material.rows(pool.indices, torch.cat([material.inputs[: len(shifted)], shifted]), weighted=False)
    generator = torch.Generator().manual_seed(material.seed)
    # The sum of squares over K outputs is the expected square of their sum with random signs: K times fewer rows.
    signs = torch.randint(0, 2, (len(j) // 10, 10, 1), generator=generator).double() * 2 - 1
    signed = (j.reshape(-1, 10, j.shape[1]) * signs).sum(1)
    order = greedy_variance(precision, signed, material.size, 10 * LOGIT_NOISE)
    return pool.indices[order.sort().values]


def auto(material: Material, judged: int, training: int, shifts: tuple[str, ...] | None) -> AutoResult:
    """The offline job's own choice, on part of the held-out data; `shifts`: those that it is told of, None: none."""
    context = material.living

    def choice(strategy: str, options: Mapping[str, Any], size: int) -> SelectionResult:
        extra = {"examples": NOVEL} if strategy == "novelty" else {}
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
        "leverage": living("leverage"),
        "greedy-variance": greedy,
        "magnitude": living("magnitude"),
        "random": lambda m: select("random", m.context, {}).indices,
        "random live": living("random"),
        "random live, last block + head": lambda m: select("random", m.inside(last_block), {}).indices,
        "random live, head": lambda m: select("random", m.inside(last_block[-1:]), {}).indices,
        "last-layer": lambda m: select("last-layer", m.context, {}).indices,
    }
