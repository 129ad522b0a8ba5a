"""offline/laplace/outcomes.py: how held-out examples turned out, in the order of their scores."""

import numpy as np
import pytest
import torch

from demur.offline.data.held_out import HeldOut
from demur.offline.data.likelihood import Classification, Multilabel, Regression
from demur.offline.laplace.outcomes import Predicted, outcomes_of
from demur.offline.laplace.scoring import MARGIN
from demur.service.bundle import Outcomes, SetScore
from demur.service.maths.outcomes import ClassOutcomes, LabelOutcomes, RegressionOutcomes
from tests import reference

K, N = 4, 60


def classified(seed: int, count: int = N) -> Predicted:
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(scale=2, size=(count, K)), rng.random((count, K))
    prediction = Classification(K).predict(mean, variance)
    targets = torch.tensor(rng.integers(0, K, count))
    return Predicted(HeldOut(torch.zeros(count, 1), targets), prediction)


@pytest.mark.parametrize("tunes", [True, False])
def test_of_a_classification(tunes: bool) -> None:
    conformal = classified(0)
    outcomes, kept = outcomes_of(conformal, classified(1, 80) if tunes else None)
    assert isinstance(outcomes, ClassOutcomes)
    assert kept.set_score is not None
    assert kept.tuning_examples == (80 if tunes else 0)
    assert (outcomes.tuning is None) == (not tunes)
    assert tunes or kept.set_score == SetScore(0.0, 1)
    p, score = conformal.prediction.probabilities, conformal.prediction.score
    assert p is not None
    targets = conformal.data.targets.numpy()
    for place, n in enumerate(np.argsort(score, kind="stable")):
        known = outcomes.calibration
        assert known.scores[place] == score[n]
        assert outcomes.classes is not None
        assert outcomes.classes[place] == targets[n]
        assert known.predicted[place] == p[n].argmax()
        assert known.correct[place] == (p[n].argmax() == targets[n])
        own = reference.set_score(p[n], targets[n], kept.set_score.penalty, kept.set_score.unpenalised)
        assert outcomes.set_scores[place] == pytest.approx(own + MARGIN * min(own, abs(1 - own)), rel=1e-12)
        assert outcomes.confidences is not None
        assert outcomes.confidences[place] == p[n].max()


def test_of_several_labels() -> None:
    rng = np.random.default_rng(3)
    prediction = Multilabel(K).predict(rng.normal(scale=2, size=(N, K)), rng.random((N, K)))
    targets = torch.tensor(rng.integers(0, 2, (N, K)))
    outcomes, _ = outcomes_of(Predicted(HeldOut(torch.zeros(N, 1), targets), prediction), None)
    assert isinstance(outcomes, LabelOutcomes)
    p = prediction.probabilities
    assert p is not None
    for place, n in enumerate(np.argsort(prediction.score, kind="stable")):
        own = [1 - p[n, k] if targets[n, k] else p[n, k] for k in range(K)]
        expected = [one + MARGIN * min(one, 1 - one) for one in own]
        np.testing.assert_allclose(outcomes.set_scores[place], expected, rtol=1e-6)


def test_of_a_regression() -> None:
    rng = np.random.default_rng(2)
    mean, variance, noise = rng.normal(size=(N, 2)), rng.random((N, 2)), 0.3
    prediction, targets = Regression(2, noise).predict(mean, variance), rng.normal(size=(N, 2))
    outcomes, kept = outcomes_of(Predicted(HeldOut(torch.zeros(N, 1), torch.tensor(targets)), prediction), None)
    assert isinstance(outcomes, RegressionOutcomes)
    assert kept == Outcomes(0, None)
    for place, n in enumerate(np.argsort(prediction.score, kind="stable")):
        expected = np.abs(targets[n] - mean[n]) / np.sqrt(variance[n] + noise**2)
        np.testing.assert_allclose(outcomes.residuals[place], (1 + MARGIN) * expected, rtol=1e-5)
