"""Statistics of the Jacobian for every candidate, one parameter and a few examples at a time.

Nothing of size (batch, outputs, candidates) exists beyond `memory_bytes`: the candidates are cut where one parameter's
block of one example would not fit, and an example's price is measured before a pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..jacobian.jacobian import SubnetworkJacobian
from ..jacobian.plan import Routes, plan_for
from ..jacobian.routes import Chosen
from ..laplace.ggn import add_curvature, diagonal_ggn
from ..runtime.peak_memory import measured_rows, rows_within
from .context import SelectionContext

# What an entry of a parameter's block takes: before and after a gather in float32, and the curvature's float64 copies.
ENTRY_BYTES = 2 * 4 + 5 * 8


def curvature_diagonal(context: SelectionContext, positions: Tensor) -> Tensor:
    """diag(sum_n J_n^T Lambda_n J_n) at `positions` (C,), over all training data, without 1 / sigma^2; float64."""
    parts = restricted(context.job.jacobian(positions), groups(context, positions))
    return torch.cat([_curvature_diagonal(context, jacobian) for jacobian in parts])


def _curvature_diagonal(context: SelectionContext, jacobian: SubnetworkJacobian) -> Tensor:
    pairs = context.batches("Curvature diagonal")
    rows = curvature_rows(context, jacobian)
    return diagonal_ggn(jacobian, pairs, context.job.likelihood, rows=rows)


def groups(context: SelectionContext, positions: Tensor) -> tuple[Tensor, ...]:
    """Consecutive runs of `positions`, cut only where a parameter's (1, K, n) block would not fit: mostly one run."""
    widest = rows_within(context.memory_bytes, ENTRY_BYTES * context.job.likelihood.outputs)
    lengths = [0]
    for _, inside in context.job.layout.locate(positions):
        first, *others = torch.split(inside, widest)
        lengths[-1] += len(first)
        lengths += map(len, others)
    return torch.split(positions, lengths)


def restricted(whole: SubnetworkJacobian, parts: Sequence[Tensor]) -> Iterator[SubnetworkJacobian]:
    """The Jacobian of each of `parts`, ascending positions among those of `whole`, whose plan is not tried again."""
    if len(parts) == 1:
        yield whole
        return
    routes = Routes.of(whole.model, whole.plan)
    for part in parts:
        indices = part.to(whole.indices.device)
        chosen = tuple(Chosen(parameter, inside) for parameter, inside in whole.layout.locate(indices))
        plan = replace(plan_for(whole.model, chosen, routes), batched_outputs=whole.plan.batched_outputs)
        yield SubnetworkJacobian(whole.model, whole.layout, indices, plan)


def curvature_rows(context: SelectionContext, jacobian: SubnetworkJacobian) -> int:
    """Examples at once whose contributions to the curvature, one parameter at a time, stay within the memory."""
    first = next(iter(context.job.pass_over_training()))[0]
    sums = torch.zeros(jacobian.size, dtype=torch.float64, device=jacobian.indices.device)
    likelihood = context.job.likelihood
    return measured_rows(context.memory_bytes, lambda one: add_curvature(jacobian, one, likelihood, sums), first)
