"""What share of foreign inputs a finished bundle rejects: measured with the serving code, and published."""

import numpy as np
from torch import Tensor

from demur.service.bundle import RejectedShare
from demur.service.inference.graph import NetworkError, NetworkFailed
from demur.service.inference.predictor import Predictor
from demur.service.maths.scores import DISTANCE

from ..config import DEFAULT_SCORE, SURPRISE, FitConfig
from ..data.foreigners import FOREIGN_EXAMPLES, obvious_foreigners
from ..report.words import passing
from ..runtime.arrays import Array, to_numpy

GIVEN = "foreign-data"
WORDS = {
    GIVEN: "of the foreign data",
    "noise": "that are uniform noise",
    "constant": "that are constant",
    "inverted": "that are inverted",
    "scaled-by-10": "scaled by 10",
    "scaled-by-100": "scaled by 100",
    "scaled-by-255": "scaled by 255",
    "shuffled-pixels": "with shuffled pixels",
    "random-tokens": "of random tokens",
    "constant-token": "of one token repeated",
}


def foreign_rejection(
    predictor: Predictor, inputs: Tensor, seed: int, given: Tensor | None = None
) -> tuple[RejectedShare, ...] | None:
    """The share of each kind of obvious foreigners that the bundle's predictor rejects, by its own rule.

    inputs (n, *shape): ordinary ones, the first of which foreigners are made of. given (m, *shape): foreign inputs of
    the user's, one kind more. None where the shape of `inputs` allows no foreigners, and none are given.
    """
    spec, some = predictor.manifest.input, inputs[:FOREIGN_EXAMPLES]
    kinds = obvious_foreigners(some, seed, spec.parts) | ({} if given is None else {GIVEN: given})
    shares = tuple(_share(name, _rejected(predictor, to_numpy(foreign))) for name, foreign in kinds.items())
    return shares or None


def _share(name: str, rejected: Array) -> RejectedShare:
    return RejectedShare(name, float(rejected.mean()), len(rejected))


def _rejected(predictor: Predictor, inputs: Array) -> Array:
    """(n,) bool: not answered; what the network cannot process gets no answer either."""
    try:
        return predictor.predict(inputs).rejected
    except (NetworkError, NetworkFailed):
        if len(inputs) == 1:
            return np.array([True])
        return np.concatenate([_rejected(predictor, inputs[i : i + 1]) for i in range(len(inputs))])


def rejection_warnings(rejection: tuple[RejectedShare, ...], config: FitConfig) -> list[str]:
    """A warning for each kind that should be rejected, and is in less than half of the cases."""
    return [
        f"of inputs {WORDS.get(found.name, found.name)}, only {100 * found.share:.0f} % are rejected: the score sees "
        f"little of them; {_remedy(found.name, config)}"
        for found in passing(rejection)
    ]


def _remedy(name: str, config: FitConfig) -> str:
    """What a user can do, of what is not asked for yet."""
    scaled = name.startswith("scaled")
    check_range = "check the range of inputs before the model, or " if scaled else ""
    if config.added_weights and config.score in (DEFAULT_SCORE, SURPRISE, DISTANCE.name):
        return f"{check_range}let the distance read other layers (added_weights with their paths), or live with it"
    if config.likelihood == "regression" and not config.added_weights:
        searched = config.prior_precision in ("budget", None)
        uncertainty = "a larger uncertainty_budget" if searched else "a smaller prior_precision"
        return f"{check_range}give {uncertainty} or more weights (subnetwork_size)"
    return f"{check_range}let the score see the distance from the training data (added_weights=True, score='default')"
