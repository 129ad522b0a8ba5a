"""Weights that move the outputs most on the training data."""

from offline.selection.context import SelectionContext, choose_largest
from offline.selection.live_weights import eligible
from offline.selection.sample import SCORE_EXAMPLES, Sample
from offline.selection.streaming import mean_squares
from offline.selection.subnetwork import Subnetwork


def gradient(context: SelectionContext, examples: int | None = SCORE_EXAMPLES, live_only: bool = False) -> Subnetwork:
    """Largest mean squared output gradient: mean_x sum_k (d f_k(x) / d w_d)^2 (arXiv 2605.09075).

    The mean is over `examples` training examples drawn by the seed, None: all.
    """
    positions, dead = eligible(context, live_only)
    sample = Sample.of(context, examples)
    scores = mean_squares(context, positions, lambda: sample.inputs("Output gradients"))
    return choose_largest(context, positions, scores, dead)
