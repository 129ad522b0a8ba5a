"""The fused score: a weighted sum of surprises."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from demur.service.maths.fused_score import Component, FusedScore, surprises
from demur.service.maths.predictive import class_probabilities
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.score_outputs import ClassOutputs
from demur.service.maths.scores import CLASSIFICATION_SCORES

Array = npt.NDArray[Any]
NAMES = ("energy", "logit_variance", "predictive_entropy")


def distribution_of(scores: Array) -> ScoreDistribution:
    found = ScoreDistribution.of(scores)
    assert found is not None
    return found


def drawn(count: int, seed: int = 0) -> ClassOutputs:
    rng = np.random.default_rng(seed)
    mean = (3 * rng.standard_normal((count, 4))).astype(np.float32)
    variance = (2 * rng.random((count, 4)) ** 2).astype(np.float32)
    return ClassOutputs(mean, variance, class_probabilities(mean, variance, 1.0), 1.0)


def fused_of(outputs: ClassOutputs, weights: tuple[float, ...] = (0.5, 0.3, 0.2)) -> FusedScore:
    scores = [CLASSIFICATION_SCORES[name] for name in NAMES]
    return FusedScore(
        tuple(
            Component(score, weight, distribution_of(score.scored(outputs)[0]))
            for score, weight in zip(scores, weights, strict=True)
        )
    )


def test_a_weighted_sum_and_its_largest_part() -> None:
    fused, outputs = fused_of(drawn(300)), drawn(20, seed=1)
    found, leading = fused.scored(outputs)
    distributions = {str(part.score.name): part.distribution for part in fused.components}
    parts = surprises(outputs, distributions) * [0.5, 0.3, 0.2]
    np.testing.assert_allclose(found, parts.sum(axis=1))
    np.testing.assert_array_equal(leading, parts.argmax(axis=1))
    assert len(set(leading.tolist())) > 1


def test_p_values_are_valid_for_dependent_scores() -> None:
    """The share of new examples rejected at 10 %, over many calibration sets, is at most 10 % (within chance)."""
    fused = fused_of(drawn(200, seed=5))
    shares = []
    for seed in range(10, 110):
        rule = RejectionRule(np.sort(fused.scored(drawn(99, seed))[0]), 0.1)
        shares.append(rule.rejected(fused.scored(drawn(200, seed + 1000))[0]).mean())
    assert np.mean(shares) == pytest.approx(0.1, abs=0.015)
