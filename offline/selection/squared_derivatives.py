"""Mean squared derivatives on a sample of the training data and on synthetic shifts of it."""

from collections.abc import Collection, Iterator

import numpy as np
import torch
from torch import Tensor

from ..data.shifts import accepted_shifts, synthetic_shifts
from .context import SelectionContext
from .sample import Sample
from .streaming import mean_squares
from .training_sample import smallest


def squared_derivatives(
    context: SelectionContext, positions: Tensor, examples: int | None, shift: str | None = None
) -> Tensor:
    """mean_x sum_k (d f_k(shift(x)) / d w_d)^2 at `positions` (C,), float64, over a sample of `examples` (None: all).

    shift: the name of a synthetic shift, None: x as it is.
    """
    return mean_squares(context, positions, lambda: _inputs(context, examples, shift))


def accepted(context: SelectionContext, examples: int | None, names: Collection[str] | None) -> tuple[str, ...]:
    """The shifts of the sample, those called `names` or all (None), for which the network has finite outputs."""
    job = context.job
    for number, inputs in enumerate(Sample.of(context, examples).inputs("Outputs under shift")):
        names = accepted_shifts(job.network, inputs, job.config.seed + number, names, job.takes.parts)
    return tuple(names or ())


def _inputs(context: SelectionContext, examples: int | None, shift: str | None) -> Iterator[Tensor]:
    """The sample's groups of inputs, shifted; each group has random draws of its own."""
    description = "Squared derivatives" if shift is None else f"Squared derivatives, {shift}"
    job = context.job
    for number, inputs in enumerate(Sample.of(context, examples).inputs(description)):
        if shift is None:
            yield inputs
        else:
            yield synthetic_shifts(inputs, job.config.seed + number, (shift,), job.takes.parts)[shift]


def pooled(context: SelectionContext, positions: Tensor, pool: int | None) -> Tensor:
    """At most `pool` (None: all) of `positions` (C,), uniformly by the seed.

    Every weight of the network has a random key, and the smallest keys are kept: what a set's pool has in a part of the
    set is in the part's pool too.
    """
    if pool is None or len(positions) <= pool:
        return positions
    keys = np.random.default_rng(context.job.config.seed).random(context.job.layout.total)
    return positions[torch.as_tensor(smallest(keys[positions.cpu().numpy()], pool), device=positions.device)]
