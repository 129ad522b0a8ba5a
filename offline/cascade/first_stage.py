"""The first stage of a cascade: live weights of the linear head, and their curvature.

Variances over weights of the head need no backward pass: f(x) and v(x) cost little more than the forward pass.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from offline.jacobian.jacobian import SubnetworkJacobian
from offline.jacobian.linear_head import LinearHead
from offline.jacobian.output_rule import ALL_OUTPUTS
from offline.job import Job
from offline.laplace.ggn import Curvature, accumulate_ggn, default_rows
from offline.selection.auto.places import drawn
from offline.selection.auto.price import PriceModel
from offline.selection.candidate_weights import candidate_positions, common
from offline.selection.context import SelectionContext
from offline.selection.live_weights import live_candidates

MOST_COST = 1.5  # forward passes, by a count; where the head is large, fewer of its weights are taken


@dataclass(frozen=True)
class FirstStage:
    """The Jacobian of the chosen head weights, and their curvature over the training data."""

    jacobian: SubnetworkJacobian
    curvature: Curvature


def head_of(job: Job) -> LinearHead:
    """The network's linear head; `ValueError` where there is none."""
    if job.head is None:
        raise ValueError(
            "cascade: found a network that does not end in a Linear layer, expected one whose output is that of its "
            "last Linear: the first stage takes weights of it; leave cascade out"
        )
    return job.head


def head_positions(job: Job) -> Tensor:
    """Positions of the head's weights that may be chosen, (C,) ascending: `kinds` counts, `within` does not."""
    return candidate_positions(job.network, job.layout, (head_of(job).path,), job.config.kinds)


def check_saves(job: Job, chosen: Tensor) -> None:
    """`ValueError` where the chosen weights (S,) all lie in the head, so that a first stage would save nothing."""
    if len(common(chosen.cpu(), head_positions(job))) == len(chosen):
        raise ValueError(
            f"cascade: found all {len(chosen)} chosen weights in the linear head {head_of(job).path!r} already, "
            "expected some outside: a prediction costs no backward pass as it is; leave cascade out, or choose weights "
            "elsewhere with another selection, `within` or a larger max_cost"
        )


def fit_first_stage(job: Job, rows: int) -> FirstStage:
    """Choose weights of the head and sum their curvature, at most `rows` examples at once; every process calls it.

    All live weights of the head, or S of them at random by the seed, halved until they cost `MOST_COST` at most.
    """
    indices = job.distributed.broadcast(_choose(job) if job.distributed.is_main else None)
    jacobian = job.jacobian(indices, ALL_OUTPUTS)
    if jacobian.plan.outside_head:
        raise ValueError(
            f"cascade: found that weights of the linear head {head_of(job).path!r} are used elsewhere in the network "
            "too, expected a head with weights of its own; leave cascade out"
        )
    torch.manual_seed(job.config.seed)
    rows = min(rows, default_rows(job.likelihood.rows, jacobian.size))
    pairs = job.pass_over_training("Curvature of the first stage")
    return FirstStage(jacobian, accumulate_ggn(jacobian, pairs, job.likelihood, rows=rows, distributed=job.distributed))


def _choose(job: Job) -> Tensor:
    context = SelectionContext(job, job.size, head_positions(job), job.memory_bytes)
    live, prices = live_candidates(context)[0], PriceModel.of(job, job.example[:1])
    if not len(live):
        raise ValueError(
            f"cascade: found no weight of the linear head {head_of(job).path!r} with curvature on the training data, "
            "expected at least one; leave cascade out"
        )
    size = min(job.size, len(live))
    while prices.predict(chosen := drawn(live, size, job.config.seed), ALL_OUTPUTS) > MOST_COST and size > 1:
        size //= 2
    return chosen
