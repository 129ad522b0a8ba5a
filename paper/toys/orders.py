"""The order in which each strategy takes weights, measured once and cut at each size."""

import numpy as np
import torch
from torch import Tensor

from benchmarks.datasets.shifts import synthetic_shifts
from demur.offline.selection.live_weights import is_live
from paper.toys.greedy import greedy
from paper.toys.predictives import PaperFitted


def selections(fitted: PaperFitted, sizes: list[int], greedy_sizes: list[int]) -> dict[str, dict[int, Tensor]]:
    """Strategy -> size -> ascending positions."""
    chosen = {name: {size: order[:size].sort().values for size in sizes} for name, order in orders(fitted).items()}
    return chosen | {"greedy": greedy(fitted, greedy_sizes)}


def orders(fitted: PaperFitted) -> dict[str, Tensor]:
    """Strategy -> positions, best first.

    "wasserstein" is the paper's. It takes weights without curvature first (of units that never fire): their variance
    1 / lambda is the largest.
    """
    live = is_live(fitted.ggn.diagonal())
    covariance = fitted.scale_tril @ fitted.scale_tril.T
    marginal = covariance.diagonal()
    gradient = fitted.training.square().mean(0)
    shifted = torch.cat(list(synthetic_shifts(torch.as_tensor(fitted.problem.x), fitted.seed).values()))
    novelty = fitted.jacobian(shifted).square().mean(0) / gradient.clamp(min=1e-300)
    drawn = torch.as_tensor(np.random.default_rng(fitted.seed).permutation(fitted.total)).double()
    scores = {
        "wasserstein": marginal,
        "wasserstein, live": _among(live, marginal),
        "random": drawn,
        "random, live": _among(live, drawn),
        "gradient": gradient,
        "novelty": _among(live & (gradient > 0), novelty),
        # The share of the full posterior's predictive variance that goes through a weight.
        "leverage": (fitted.training @ covariance).square().mean(0) / marginal,
    }
    return {name: torch.argsort(score, descending=True, stable=True) for name, score in scores.items()}


def _among(allowed: Tensor, scores: Tensor) -> Tensor:
    return torch.where(allowed, scores, -torch.inf)
