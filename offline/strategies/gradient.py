"""Weights by their Jacobians: what moves the outputs, on the training data or under shift."""

from collections.abc import Collection, Iterator

from torch import Tensor

from offline.shifts import accepted_shifts, synthetic_shifts
from offline.strategies.context import SelectionContext, SelectionResult, choose_largest
from offline.strategies.live import check_live_only, eligible, split_live
from offline.strategies.sample import SCORE_EXAMPLES, Sample
from offline.strategies.streaming import mean_squares

# An example is differentiated once as it is and once for each shift.
NOVELTY_EXAMPLES = SCORE_EXAMPLES // 2


def gradient(
    context: SelectionContext, examples: int | None = SCORE_EXAMPLES, live_only: bool = False
) -> SelectionResult:
    """Largest mean squared output gradient: mean_x sum_k (d f_k(x) / d w_d)^2 (arXiv 2605.09075).

    The mean is over `examples` training examples drawn by the seed, None: all.
    """
    positions, dead = eligible(context, live_only)
    sample = Sample.of(context, examples)
    scores = mean_squares(context, positions, lambda: sample.inputs("Output gradients"))
    return choose_largest(context, positions, scores, dead)


def novelty(
    context: SelectionContext,
    examples: int | None = NOVELTY_EXAMPLES,
    live_only: bool = True,
    shifts: Collection[str] | None = None,
) -> SelectionResult:
    """Largest ratio of the mean squared Jacobian under shift to that on the training data: flat there, alive elsewhere.

    score_d = mean_{shifts, x} sum_k (d f_k(shift(x)) / d w_d)^2 / mean_x sum_k (d f_k(x) / d w_d)^2 over `examples`
    training examples drawn by the seed (None: all) and the `shifts` of `offline.shifts` (None: every one), each counted
    alike. Only weights with a derivative on these examples are ranked (`live_only` is always True), the others are
    counted as dead.
    """
    check_live_only(live_only, always="novelty")
    sample = Sample.of(context, examples)
    usual = mean_squares(context, context.candidates, lambda: sample.inputs("Output gradients"))
    live, positions, dead = split_live(context, usual)
    names = _accepted(sample, shifts)
    shifted = mean_squares(context, positions, lambda: _shifted(sample, names))
    return choose_largest(context, positions, shifted / usual[live], dead)


def _accepted(sample: Sample, names: Collection[str] | None) -> tuple[str, ...]:
    """The shifts of the sample for which the network has finite outputs."""
    context = sample.context
    for number, inputs in enumerate(sample.inputs("Outputs under shift")):
        names = accepted_shifts(context.network, inputs, context.seed + number, names)
    return tuple(names or ())


def _shifted(sample: Sample, names: Collection[str]) -> Iterator[Tensor]:
    """The shifts of every group of inputs; each group has random draws of its own."""
    for number, inputs in enumerate(sample.inputs("Gradients under shift")):
        yield from synthetic_shifts(inputs, sample.context.seed + number, names).values()
