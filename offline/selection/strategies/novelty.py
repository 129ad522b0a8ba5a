"""Weights that are flat on the training data and alive under synthetic shift of it.

r_sd = mean_x sum_k (d f_k(shift_s(x)) / d w_d)^2 / mean_x sum_k (d f_k(x) / d w_d)^2

is what shift s does to weight d: above 1, the outputs move more with it than they do on the data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ...data.shifts import ShiftName
from ..context import SelectionContext, choose_largest
from ..live_weights import split_live
from ..sample import SCORE_EXAMPLES, Count, holding
from ..squared_derivatives import accepted, pooled, squared_derivatives
from ..subnetwork import Subnetwork

# An example is differentiated once as it is and once for each shift.
NOVELTY_EXAMPLES = SCORE_EXAMPLES // 2
# Added to each r_sd: a weight that is dead under one shift of several is unlikely to be drawn, not impossible.
LEAST_RATIO = 1e-6
Shifts = Annotated[Sequence[ShiftName], Field(min_length=1)]


def novelty_sampling(
    context: SelectionContext,
    examples: Count | None = NOVELTY_EXAMPLES,
    shifts: Shifts | None = None,
    pool: Count | None = None,
) -> Subnetwork:
    """S weights drawn by the seed without replacement, each next one in proportion to (prod_s r_sd)^(1 / shifts).

    The geometric mean asks for life under every shift: in the arithmetic one the most violent shift speaks for all.
    Drawn rather than ranked, since the largest are weights that say the same: as the largest log-scores with Gumbel
    noise (Kool et al. 2019, arXiv 1903.06059, section 2.3).

    Over `examples` training examples drawn by the seed (None: all) and the `shifts` of `demur.offline.data.shifts`
    (None: every one), among a random `pool` of so many weights (None: among all). Only weights with a derivative on
    these examples are drawn, the others are counted as dead.
    """
    ratios = _Ratios.of(context, examples, shifts, pool)
    logs = torch.zeros(len(ratios.positions), dtype=torch.float64)
    for ratio in ratios:
        logs += torch.log(ratio + LEAST_RATIO)
    scores = perturbed(logs / len(ratios.shifts), context.job.config.seed)
    return choose_largest(context, ratios.positions, scores, ratios.dead)


@dataclass(frozen=True)
class _Ratios:
    """Gives r_sd (C,) of the live weights at `positions` (C,), one shift after the other; `dead`: how many others."""

    context: SelectionContext
    examples: int | None
    shifts: tuple[str, ...]
    positions: Tensor
    usual: Tensor
    dead: int

    @classmethod
    def of(
        cls, context: SelectionContext, examples: int | None, shifts: Sequence[str] | None, pool: int | None
    ) -> "_Ratios":
        context = holding(context, examples)
        pooled_weights = pooled(context, context.candidate_weights, pool)
        usual = squared_derivatives(context, pooled_weights, examples)
        live, positions, dead = split_live(replace(context, candidate_weights=pooled_weights), usual)
        return cls(context, examples, accepted(context, examples, shifts), positions, usual[live], dead)

    def __iter__(self) -> Iterator[Tensor]:
        for name in self.shifts:
            yield squared_derivatives(self.context, self.positions, self.examples, name) / self.usual


def perturbed(log_scores: Tensor, seed: int) -> Tensor:
    """log_scores (C,) plus Gumbel noise by the seed: its S largest are S draws without replacement by the scores."""
    return log_scores + torch.as_tensor(np.random.default_rng(seed).gumbel(size=len(log_scores)))
