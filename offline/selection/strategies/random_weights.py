"""Weights at random."""

import numpy as np
import torch

from ..context import SelectionContext, size_within
from ..live_weights import eligible
from ..subnetwork import Subnetwork


def random_weights(context: SelectionContext, live_only: bool = False) -> Subnetwork:
    """Uniformly at random without replacement among the candidates, or among those with curvature."""
    positions, dead = eligible(context, live_only)
    size = size_within(context, len(positions), dead)
    chosen = np.random.default_rng(context.job.config.seed).choice(positions.numpy(), size, replace=False)
    return Subnetwork(torch.as_tensor(np.sort(chosen)), dead)
