"""Weights at random."""

import numpy as np
import torch

from probity.offline.selection.context import SelectionContext, check_size
from probity.offline.selection.live_weights import eligible
from probity.offline.selection.subnetwork import Subnetwork


def random_weights(context: SelectionContext, live_only: bool = False) -> Subnetwork:
    """Uniformly at random without replacement among the candidates, or among those with curvature."""
    positions, dead = eligible(context, live_only)
    check_size(context.size, len(positions), dead)
    chosen = np.random.default_rng(context.job.config.seed).choice(positions.numpy(), context.size, replace=False)
    return Subnetwork(torch.as_tensor(np.sort(chosen)), dead)
