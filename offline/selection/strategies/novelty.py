"""Weights that are flat on the training data and alive under synthetic shift of it.

r_sd = mean_x sum_k (d f_k(shift_s(x)) / d w_d)^2 / mean_x sum_k (d f_k(x) / d w_d)^2

is what shift s does to weight d: above 1, the outputs move more with it than they do on the data.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from offline.data.shifts import accepted_shifts, synthetic_shifts
from offline.selection.context import SelectionContext, choose_largest
from offline.selection.live_weights import check_live_only, split_live
from offline.selection.sample import SCORE_EXAMPLES, Sample
from offline.selection.streaming import mean_squares
from offline.selection.subnetwork import Subnetwork

# An example is differentiated once as it is and once for each shift.
NOVELTY_EXAMPLES = SCORE_EXAMPLES // 2
# Added to each r_sd: a weight that is dead under one shift of several is unlikely to be drawn, not impossible.
LEAST_RATIO = 1e-6

Groups = Callable[[str], Iterable[Tensor]]


def novelty(
    context: SelectionContext,
    examples: int | None = NOVELTY_EXAMPLES,
    live_only: bool = True,
    shifts: Collection[str] | None = None,
) -> Subnetwork:
    """Largest mean_s r_sd: the mean squared Jacobian under shift over that on the training data.

    Over `examples` training examples drawn by the seed (None: all) and the `shifts` of `offline.data.shifts` (None:
    every one), each counted alike. Only weights with a derivative on these examples are ranked (`live_only` is always
    True), the others are counted as dead.
    """
    check_live_only(live_only, always="novelty")
    given = _groups(Sample.of(context, examples))
    usual = mean_squares(context, context.candidate_weights, lambda: given("Gradients without shift"))
    live, positions, dead = split_live(context, usual)
    names = _accepted(context, given, shifts)
    shifted = mean_squares(context, positions, lambda: _shifted(context, given, names))
    return choose_largest(context, positions, shifted / usual[live], dead)


def novelty_sampling(
    context: SelectionContext,
    examples: int | None = NOVELTY_EXAMPLES,
    live_only: bool = True,
    shifts: Collection[str] | None = None,
) -> Subnetwork:
    """S weights drawn by the seed without replacement, each next one in proportion to (prod_s r_sd)^(1 / shifts).

    The geometric mean asks for life under every shift: in the arithmetic one the most violent shift speaks for all.
    Drawn rather than ranked, since the largest are weights that say the same. Options as for `novelty`; drawn as the
    largest log-scores with Gumbel noise (Kool et al. 2019, arXiv 1903.06059, section 2.3).
    """
    check_live_only(live_only, always="novelty-sampling")
    given = _groups(Sample.of(context, examples))
    usual = mean_squares(context, context.candidate_weights, lambda: given("Gradients without shift"))
    live, positions, dead = split_live(context, usual)
    names = _accepted(context, given, shifts)
    logs = torch.zeros(len(positions), dtype=torch.float64)
    for name in names:
        shifted = mean_squares(context, positions, lambda name=name: _shifted(context, given, (name,)))  # type: ignore[misc]
        logs += torch.log(shifted / usual[live] + LEAST_RATIO)
    return choose_largest(context, positions, perturbed(logs / len(names), context.job.config.seed), dead)


def perturbed(log_scores: Tensor, seed: int) -> Tensor:
    """log_scores (C,) plus Gumbel noise by the seed: its S largest are S draws without replacement by the scores."""
    return log_scores + torch.as_tensor(np.random.default_rng(seed).gumbel(size=len(log_scores)))


def _groups(sample: Sample) -> Groups:
    """Passes over the sample, each with a description: of a part of the data, held; of all of it, read anew."""
    if sample.kept is None:
        return sample.inputs
    held = list(sample.inputs("Sample of the training data"))
    return lambda description: sample.context.job.track(held, description)


def _accepted(context: SelectionContext, given: Groups, names: Collection[str] | None) -> tuple[str, ...]:
    """The shifts of the sample for which the network has finite outputs."""
    for number, inputs in enumerate(given("Outputs under shift")):
        names = accepted_shifts(context.job.network, inputs, context.job.config.seed + number, names)
    return tuple(names or ())


def _shifted(context: SelectionContext, given: Groups, names: Collection[str]) -> Iterator[Tensor]:
    """The shifts of every group of inputs; each group has random draws of its own."""
    for number, inputs in enumerate(given("Gradients under shift")):
        yield from synthetic_shifts(inputs, context.job.config.seed + number, names).values()
