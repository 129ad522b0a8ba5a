"""Weights that move the outputs most on the training data."""

from ..context import SelectionContext, choose_largest
from ..live_weights import eligible
from ..sample import SCORE_EXAMPLES, Count
from ..squared_derivatives import pooled, squared_derivatives
from ..subnetwork import Subnetwork


def gradient(
    context: SelectionContext,
    examples: Count | None = SCORE_EXAMPLES,
    live_only: bool = False,
    pool: Count | None = None,
) -> Subnetwork:
    """Largest mean squared output gradient: mean_x sum_k (d f_k(x) / d w_d)^2 (arXiv 2605.09075).

    The mean is over `examples` training examples drawn by the seed, None: all. Chooses among a random `pool` of so many
    weights, None: among all.
    """
    candidates, dead = eligible(context, live_only)
    positions = pooled(context, candidates, pool)
    return choose_largest(context, positions, squared_derivatives(context, positions, examples), dead)
