"""Choose the out-of-distribution score: the one that is named, or by default what the posterior and the task have.

Everything here sees the tuning half of the held-out data. The conformal half, which then sets the threshold, chooses
nothing: p-values are valid whichever score is chosen.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from demur.service.inference.prediction import finite_rows
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import DISTANCE, MISTAKES, PREDICTIVE_ENTROPY, SCORES, ScoreName, Scoring
from demur.service.maths.surprise import Component, LargestSurprise, as_odds

from ..config import DEFAULT_SCORE, SURPRISE
from ..data.likelihood import Classification, Likelihood
from ..features.mistakes import NAMED
from ..runtime.arrays import Array

# Nearer than all but 5 % of the held-out data, the probabilities tell better (CIFAR-100 for CIFAR-10: AUROC 0.73 with
# all of the distance, 0.77 so).
LEAST_DISTANCE = math.log(20)
FAR = 1.0  # v far from all examples; counted as odds, since the tail that dozens of examples show leaves it no room
PLAUSIBLE = 5.0  # the surprise of an entropy: beyond, an odd one would set a threshold that no distance reaches
NAT = 1e-6  # above 0, of a likeness, where it counts in full
MARGIN = 1e-3
# Of a distance, a difference of numbers next to 1; or a part of its spread over held-out data that lie close together,
# as those on a line: more would make their p-values larger than those of others by what a test for drift sees.
LEAST_MARGIN, SPREAD_MARGIN = 1e-5, 1e-2


@dataclass(frozen=True)
class HeldOutOutputs:
    """What is computed for held-out examples: mean and variance (n, K), and the feature scores (n,), by name.
    noise_scale (n, K): where the noise of a regression depends on the input."""

    mean: Array
    variance: Array
    features: Mapping[str, Array] = field(default_factory=dict)
    noise_scale: Array | None = None


def with_margin(scores: Array, *ends: float) -> Array:
    """Scores of held-out examples, raised by a thousandth of the distance from the nearest of `ends`, where they crowd.

    Of inputs that repeat, as rows of categories do, a served copy would else be above its held-out one by the rounding
    of float32, and all copies rejected, or without their class in a set. Raised, p-values only grow, and stay valid.
    """
    return np.asarray(scores + MARGIN * np.min([np.abs(scores - end) for end in ends], axis=0))


@dataclass(frozen=True)
class Raised:
    """The score of raised single ones: where it is steep, their margin is the one that counts. most: the largest
    entropy there is, next to which a thousandth of it would be all that tells."""

    scoring: Scoring
    name: ScoreName
    most: float

    def scored(self, singles: Mapping[str, Array]) -> tuple[Array, Array | None]:
        """The score (B,), and the place of the component that it is, if it has several."""
        ends: dict[str, float] = {PREDICTIVE_ENTROPY.name: self.most}
        raised = {name: with_margin(scores, 0.0, ends.get(name, 0.0)) for name, scores in singles.items()}
        if DISTANCE.name in raised:
            scores = singles[DISTANCE.name]
            least = min(LEAST_MARGIN, SPREAD_MARGIN * np.subtract(*np.quantile(scores, (0.9, 0.1))) or LEAST_MARGIN)
            raised[DISTANCE.name] = np.maximum(raised[DISTANCE.name], scores + least)
        return self.scoring.scored(raised)


def choose_score(name: str, likelihood: Likelihood, tuned: HeldOutOutputs | None) -> Scoring | None:
    """The score that is called so (`FitConfig.score`), None for that of a likelihood by itself; `ValueError` where it
    cannot be had.

    tuned: the outputs of the tuning half, if there is one.
    """
    measures = tuned is not None and DISTANCE.name in tuned.features
    if name in (DISTANCE.name, SURPRISE) and not measures:
        raise ValueError(
            f"score: found {name!r} for a network without a layer that added weights could read, expected another score"
        )
    if name == DEFAULT_SCORE and not measures:
        return None
    by_default = SURPRISE if isinstance(likelihood, Classification) else DISTANCE.name
    wanted = by_default if name == DEFAULT_SCORE else name
    if wanted in SCORES:
        return SCORES[wanted]
    assert tuned is not None  # since it measures
    assert isinstance(likelihood, Classification)  # `FitConfig` refuses others
    joined = largest_surprise(singles_of(likelihood, tuned))
    if joined is None and name == SURPRISE:
        raise ValueError(
            "score='surprise': found neither entropies nor distances that differ between held-out examples and are "
            "finite, expected some; name another score"
        )
    return joined


def largest_surprise(ordinary: Mapping[str, Array]) -> LargestSurprise | None:
    """Surprise in two ways, what the probabilities say and how far the input is, and by what looks like a mistake that
    has a name; None where neither of the two tells anything.

    A likeness s to one of M mistakes, in nats, surprises by u(s) = log(M / a) + s above 0 and by nothing below, with
    a = `NAMED`: a / M of ordinary inputs are above 0, and of likelihood ratios that should be 1, a share of at most
    e^-s is above e^s. So what is named is rejected, the likelier mistake leads, and others hardly notice.
    """
    parts: list[Component] = []
    for score, least, end in ((PREDICTIVE_ENTROPY, 0.0, None), (DISTANCE, LEAST_DISTANCE, FAR)):
        if (distribution := ScoreDistribution.of(as_odds(score.scored(ordinary)[0], end))) is not None:
            distribution = distribution if end else distribution.compressed(PLAUSIBLE)
            parts.append(Component(score, distribution, least if parts else 0.0, end))
    if not parts:
        return None
    told = [SCORES[name] for name in ordinary if name in MISTAKES]
    least = math.log(max(1, len(told)) / NAMED)
    named = ScoreDistribution(np.array([0.0, NAT]), np.array([0.0, least]), 1.0, 0.0)
    return LargestSurprise((*parts, *(Component(score, named, least) for score in told)))


def singles_of(likelihood: Classification, found: HeldOutOutputs) -> dict[str, Array]:
    """The single scores by name, in the precision of the service; without the rows of what is not finite."""
    with np.errstate(over="ignore"):
        mean, variance = found.mean.astype(np.float32), found.variance.astype(np.float32)
    finite = finite_rows(mean, variance, *(scores[:, np.newaxis] for scores in found.features.values()))
    total = likelihood.predict(mean[finite], variance[finite]).total
    assert total is not None  # of a classification
    return {PREDICTIVE_ENTROPY.name: total, **{name: scores[finite] for name, scores in found.features.items()}}
