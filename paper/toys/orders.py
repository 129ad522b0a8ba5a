"""The order in which each strategy of the offline job takes weights, measured once and cut at each size."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from paper.fitted import Fitted
from paper.strategies.greedy import closest, outputs_to_match
from paper.strategies.leverage import exact_leverage
from probity.offline.data.shifts import synthetic_shifts
from probity.offline.selection.live_weights import is_live
from probity.offline.selection.sample import Sample
from probity.offline.selection.streaming import mean_squares


def orders(fitted: Fitted, marginal: Tensor) -> dict[str, Tensor]:
    """Strategy -> positions, best first; `marginal` (D,): variances of the full posterior.

    "wasserstein" is the paper's. It takes weights without curvature first (of units that never fire): their variance
    1 / lambda is the largest.
    """
    context, everything = fitted.context, torch.arange(fitted.total)
    live = is_live(fitted.ggn.diagonal())
    gradient = mean_squares(context, everything, lambda: (x for x, _ in context.job.pass_over_training()))
    shifted = [y for x, _ in context.job.pass_over_training() for y in synthetic_shifts(x, fitted.seed).values()]
    novelty = mean_squares(context, everything, lambda: iter(shifted)) / gradient.clamp(min=1e-300)
    drawn = torch.as_tensor(np.random.default_rng(fitted.seed).permutation(fitted.total)).double()
    scores = {
        "wasserstein": marginal,
        "wasserstein, live": _among(live, marginal),
        "random": drawn,
        "random, live": _among(live, drawn),
        "gradient": gradient,
        "novelty": _among(live & (gradient > 0), novelty),
        "leverage": exact_leverage(context, everything, Sample.of(context, None)),
    }
    return {name: torch.argsort(score, descending=True, stable=True) for name, score in scores.items()}


def _among(allowed: Tensor, scores: Tensor) -> Tensor:
    return torch.where(allowed, scores, -torch.inf)


def greedy(fitted: Fitted, sizes: Iterable[int]) -> dict[int, Tensor]:
    """Size -> positions: they depend on it, through lambda S / D."""
    rows = outputs_to_match(fitted.context, fitted.context.candidate_weights)
    contexts = (replace(fitted.context, size=size) for size in sizes)
    return {context.size: closest(context, fitted.ggn, rows).sort().values for context in contexts}
