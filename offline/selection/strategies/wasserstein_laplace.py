"""The paper's rule under a Laplace posterior: keep the weights of largest marginal variance.

Under an independence assumption they minimise the 2-Wasserstein distance to the full posterior (Daxberger et al. 2021,
section 4). Dead weights have the prior's variance, the largest there is, and are always left out and counted.
"""

from ..context import SelectionContext, choose_largest
from ..live_weights import split_live
from ..streaming import curvature_diagonal
from ..subnetwork import Subnetwork


def wasserstein_laplace(context: SelectionContext) -> Subnetwork:
    """Largest 1 / (diag(H)_d + lambda), the marginal variance of a diagonal Laplace posterior: smallest curvature."""
    curvature = curvature_diagonal(context, context.candidate_weights)
    live, positions, dead = split_live(context, curvature)
    return choose_largest(context, positions, -curvature[live], dead)
