"""Choose the out-of-distribution score: several as one, or a single one that clearly tells synthetic shifts better, or
foreign data that the user gives.

Each kind of shift judges a fused score whose weights were fitted to the other kinds; the weights that are served are
fitted to all. Everything here sees the tuning half of the held-out data and shifts of it. The conformal half, which
then sets the threshold, chooses nothing: p-values are valid whichever score is chosen.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from demur.service.inference.prediction import finite_rows
from demur.service.maths.fused_score import Component, FusedScore, LargestSurprise, surprises
from demur.service.maths.predictive import class_probabilities
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.score_outputs import ClassOutputs, LabelOutputs, class_outputs
from demur.service.maths.scores import (
    CLASSIFICATION_SCORES,
    FEATURE_SCORES,
    LABEL_SCORES,
    SCORES,
    Score,
    ScoreName,
    Scoring,
)

from ..config import DEFAULT_SCORE, FitConfig
from ..data.held_out import HeldOut
from ..data.likelihood import Classification, Likelihood
from ..data.shifts import finite_shifts, has_finite_outputs, kind_of_shift
from ..evaluation.auroc import auroc
from ..job import Job
from ..network.invented import for_invented
from ..runtime.arrays import Array
from .score_weights import fit_weights

SHIFTED_EXAMPLES = 250  # under each shift
LEAST_WEIGHT = 0.01  # a component with less is left out: it costs time with every prediction
FUSED = "fused"
SURPRISE, DISTANCE = "surprise", "distance"
# Nearer than all but 5 % of the held-out data, the probabilities tell better (CIFAR-100 for CIFAR-10: AUROC 0.73 with
# all of the distance, 0.77 so).
LEAST_DISTANCE = math.log(20)
CHANCE = 0.5  # the AUROC of a score that tells nothing
# By less than this, a mean AUROC over 250 examples under each shift differs by chance. A score that sees one thing may
# tell the synthetic shifts and nothing else: where that is all it has before the fused score, it is not chosen.
CLEARLY = 0.01


@dataclass(frozen=True)
class HeldOutOutputs:
    """What is computed for held-out examples: mean and variance (n, K), and the feature scores (n,), by name."""

    mean: Array
    variance: Array
    features: Mapping[str, Array] = field(default_factory=dict)


Predict = Callable[[HeldOut], HeldOutOutputs]


@dataclass(frozen=True)
class Compared:
    """How well a score told the tuning half from shifts of it: the AUROC, its mean over kinds of shift. The weights of
    a fused score were fitted to the other kinds."""

    name: ScoreName
    shift_auroc: float
    chosen: bool


@dataclass(frozen=True)
class ChosenScore:
    """The score, and what it was compared with; nothing where it was named."""

    scoring: Scoring
    compared: tuple[Compared, ...] = ()


def choose_score(
    job: Job, likelihood: Likelihood, tuning: HeldOut, tuned: HeldOutOutputs | None, predict: Predict
) -> ChosenScore | None:
    """The score that `FitConfig.score` asks for, None for that of a likelihood by itself; `ValueError` where it cannot
    be had.

    tuned: the outputs of the tuning half; predict: those of other examples.
    """
    name, measures = job.config.score, tuned is not None and DISTANCE in tuned.features
    if name in (DISTANCE, SURPRISE) and not measures:
        raise ValueError(
            f"score: found {name!r} for a network without a layer that added weights could read, expected another score"
        )
    if name == DEFAULT_SCORE and not measures:
        return None
    by_default = SURPRISE if isinstance(likelihood, Classification) else DISTANCE
    wanted = by_default if name == DEFAULT_SCORE else name
    if wanted in SCORES:
        return ChosenScore(SCORES[wanted])
    assert tuned is not None  # `FitConfig.tunes`
    assert isinstance(likelihood, Classification)  # `FitConfig` refuses others
    if wanted == SURPRISE:
        ordinary = outputs_of(likelihood, tuned)
        joined = None if ordinary is None else largest_surprise(ordinary)
        if joined is None and name == SURPRISE:
            raise ValueError(
                "score='surprise': found neither entropies nor distances that differ between held-out examples and are "
                "finite, expected some; name another score"
            )
        return None if joined is None else ChosenScore(joined)
    some = tuning.at(np.arange(min(len(tuning), SHIFTED_EXAMPLES)))
    shifts = other_inputs(job, some.inputs)
    predicted = {kind: outputs_of(likelihood, predict(unlabelled(x))) for kind, x in shifts.items()}
    shifted = {kind: outputs for kind, outputs in predicted.items() if outputs is not None}
    return compare(job.config, outputs_of(likelihood, tuned), shifted)


def other_inputs(job: Job, usual: Tensor) -> dict[str, Tensor]:
    """What the scores are to tell from `usual` inputs: the foreign data, or without them synthetic shifts of `usual`.

    Of foreign data, each half judges weights that were fitted to the other half, as if it were another kind.
    """
    if job.foreign is None:
        return finite_shifts(job.network, usual, job.config.seed, parts=job.takes.parts)
    halves = {"even-foreign": job.foreign[::2], "odd-foreign": job.foreign[1::2]}
    sturdy = for_invented(job.network, usual)
    return {name: half for name, half in halves.items() if len(half) and has_finite_outputs(sturdy, half)}


def unlabelled(inputs: Tensor) -> HeldOut:
    """Inputs as held-out examples whose targets nothing reads."""
    return HeldOut(inputs, inputs.new_zeros(len(inputs)))


def outputs_of(likelihood: Classification, found: HeldOutOutputs) -> ClassOutputs | None:
    """What the scores are made of, in the precision of the service; without what is not finite; None for no rows."""
    with np.errstate(over="ignore"):
        mean, variance = found.mean.astype(np.float32), found.variance.astype(np.float32)
    finite = finite_rows(mean, variance, *(scores[:, np.newaxis] for scores in found.features.values()))
    if not finite.any():
        return None
    mean, variance, temperature = mean[finite], variance[finite], likelihood.temperature
    features = {name: scores[finite] for name, scores in found.features.items()}
    probabilities = class_probabilities(mean, variance, temperature, likelihood.link)
    return class_outputs(mean, variance, probabilities, temperature, features, likelihood.link)


def compare(config: FitConfig, ordinary: ClassOutputs | None, shifted: Mapping[str, ClassOutputs]) -> ChosenScore:
    """The fused score, or with "auto" a single one that is clearly better (`Compared`); shifted: by the name of the
    shift."""
    if ordinary is None or not shifted:
        raise ValueError(
            f"score={config.score!r}: found no synthetic shift of the held-out data, or no foreign data, for which the "
            f"network's outputs are finite, expected some; name a score, or leave it at {DEFAULT_SCORE!r}"
        )
    fused = fit_fused(ordinary, list(shifted.values()))
    candidates: list[Scoring] = [*scores_of(ordinary).values(), *([] if fused is None else [fused])]
    if config.score == FUSED and fused is None:
        raise ValueError("score='fused': found no score that rises under any synthetic shift, expected one; name one")
    quality = [_quality(scoring, ordinary, shifted) for scoring in candidates]
    best = int(np.argmax(quality))
    hedged = fused is not None and (config.score == FUSED or quality[-1] >= quality[best] - CLEARLY)
    chosen = candidates[-1 if hedged else best]
    each = zip(candidates, quality, strict=True)
    return ChosenScore(chosen, tuple(Compared(one.name, value, one is chosen) for one, value in each))


def scores_of(outputs: ClassOutputs) -> dict[str, Score]:
    """The single scores of a classification, and the feature scores that are there."""
    single = LABEL_SCORES if isinstance(outputs, LabelOutputs) else CLASSIFICATION_SCORES
    return single | {name: FEATURE_SCORES[name] for name in outputs.features}


def largest_surprise(ordinary: ClassOutputs) -> LargestSurprise | None:
    """Surprise in two ways, what the probabilities say and how far the input is; None where neither tells anything."""
    parts: list[Component] = []
    for score, least in (
        (CLASSIFICATION_SCORES["predictive_entropy"], 0.0),
        (FEATURE_SCORES[DISTANCE], LEAST_DISTANCE),
    ):
        if (distribution := ScoreDistribution.of(score.scored(ordinary)[0])) is not None:
            parts.append(Component(score, 1.0, distribution, least if parts else 0.0))
    return LargestSurprise(tuple(parts)) if parts else None


def fit_fused(ordinary: ClassOutputs, shifted: list[ClassOutputs]) -> FusedScore | None:
    """The fused score of those that tell anything; None where none does."""
    known = {}
    for name, score in scores_of(ordinary).items():
        if (distribution := ScoreDistribution.of(score.scored(ordinary)[0])) is not None:
            known[name] = distribution
    if not known:
        return None
    there = np.concatenate([surprises(outputs, known) for outputs in shifted])
    weights = fit_weights(surprises(ordinary, known), there)
    weights[weights < LEAST_WEIGHT] = 0.0
    if not weights.any():
        return None
    weights /= weights.sum()
    pairs = zip(known.items(), weights.tolist(), strict=True)
    return FusedScore(tuple(Component(SCORES[n], w, known[n]) for (n, _), w in pairs if w > 0))


def _quality(scoring: Scoring, ordinary: ClassOutputs, shifted: Mapping[str, ClassOutputs]) -> float:
    """The mean over kinds of shift of the mean AUROC under the shifts of a kind, that of a fused score without it."""
    each = []
    for kind in dict.fromkeys(map(kind_of_shift, shifted)):
        own = [outputs for name, outputs in shifted.items() if kind_of_shift(name) == kind]
        others = [outputs for name, outputs in shifted.items() if kind_of_shift(name) != kind]
        judged: Scoring | None = scoring
        if isinstance(scoring, FusedScore) and others:  # a single kind of shift fits and judges
            judged = fit_fused(ordinary, others)
        each.append(CHANCE if judged is None else _mean_auroc(judged, ordinary, own))
    return float(np.mean(each))


def _mean_auroc(scoring: Scoring, ordinary: ClassOutputs, shifted: list[ClassOutputs]) -> float:
    usual = scoring.scored(ordinary)[0]
    return float(np.mean([auroc(usual, scoring.scored(outputs)[0]) for outputs in shifted]))
