"""`auto`: live weights of the last layers, at random.

The places of the network are tried from its end, and the first one with enough live weights is taken, among those where
a prediction costs at most three forward passes, by a count (`demur.offline.selection.price`); where no place is as
cheap, fewer weights are taken. Near the end, derivatives cost next to nothing; and which of the live weights are chosen
makes no difference that shows beside added weights: a comparison of strategies on held-out data, judged by synthetic
shifts, gained nothing beyond the noise of three seeds.
"""

from dataclasses import replace

from ..candidate_weights import common
from ..context import SelectionContext
from ..live_weights import live_candidates
from ..places import affordable_places, drawn, weights_in
from ..subnetwork import Subnetwork

EXAMPLES = 1000  # of the training data, to tell which weights live


def last_layers(context: SelectionContext) -> Subnetwork:
    """S live weights of the last layers, or as many as there are, or as the price allows.

    Raises `ValueError` where no weight has curvature.
    """
    affordable, job = affordable_places(context), context.job
    places, size = affordable.places, affordable.size
    live, dead = live_candidates(replace(context, candidate_weights=weights_in(places)), EXAMPLES)
    if not len(live):
        raise ValueError(
            f"selection='auto': found {dead} weights and none with curvature on the training data, expected at least "
            "one; no choice of weights would change a prediction, as where logits are so large that every softmax is "
            "flat"
        )
    found = [(place, common(place.positions, live.cpu())) for place in places]
    place, inside = next((pair for pair in found if len(pair[1]) >= size), max(found, key=lambda pair: len(pair[1])))
    chosen = drawn(inside, size, job.config.seed)
    amount = "all" if len(chosen) == len(inside) else "random"
    fewer = f"; {context.size} weights would cost more than is usual" if size < context.size else ""
    return Subnetwork(
        chosen,
        len(place.positions) - len(inside),
        f"{amount} live weights of {place.name}, about {place.cost:.1f} forward passes an example, by a count{fewer}",
        within=place.modules,
    )
