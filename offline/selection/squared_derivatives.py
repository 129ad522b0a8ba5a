"""Mean squared derivatives on a sample of the training data."""

import numpy as np
import torch
from torch import Tensor

from .context import SelectionContext
from .sample import Sample
from .streaming import mean_squares
from .training_sample import smallest


def squared_derivatives(context: SelectionContext, positions: Tensor, examples: int | None) -> Tensor:
    """mean_x sum_k (d f_k(x) / d w_d)^2 at `positions` (C,), float64, over a sample of `examples` (None: all)."""
    return mean_squares(context, positions, lambda: Sample.of(context, examples).inputs("Squared derivatives"))


def pooled(context: SelectionContext, positions: Tensor, pool: int | None) -> Tensor:
    """At most `pool` (None: all) of `positions` (C,), uniformly by the seed.

    Every weight of the network has a random key, and the smallest keys are kept: what a set's pool has in a part of the
    set is in the part's pool too.
    """
    if pool is None or len(positions) <= pool:
        return positions
    keys = np.random.default_rng(context.job.config.seed).random(context.job.layout.total)
    return positions[torch.as_tensor(smallest(keys[positions.cpu().numpy()], pool), device=positions.device)]
