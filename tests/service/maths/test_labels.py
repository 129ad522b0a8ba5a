"""Several labels an example: links, entropies, likelihoods and sets against loops over the labels."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from demur.service.inference.graph import GraphOutputs
from demur.service.inference.prediction import Predictive
from demur.service.maths.prediction_sets import LabelSets, label_set_scores
from demur.service.maths.predictive import (
    Link,
    class_probabilities,
    label_entropy,
    label_log_likelihood,
    link_approx,
    sigmoid,
)
from tests import reference

RNG = np.random.default_rng(0)
MEAN, VARIANCE = 4 * RNG.normal(size=(30, 5)), RNG.gamma(1.0, 2.0, size=(30, 5))
TARGETS = RNG.integers(0, 2, size=(30, 5))
LINK: Link = "probit-sigmoid"


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_probabilities_and_likelihood_equal_the_oracle(temperature: float) -> None:
    found = link_approx(MEAN, VARIANCE, temperature, LINK)
    np.testing.assert_allclose(found, reference.label_probabilities(MEAN, VARIANCE, temperature), rtol=1e-12)
    both = class_probabilities(MEAN, VARIANCE, temperature, LINK, 1.7)
    np.testing.assert_array_equal(both[0], found)
    np.testing.assert_allclose(both[1], reference.label_probabilities(MEAN, 0 * MEAN, 1.7), rtol=1e-12)
    likely = [reference.label_log_likelihood(*row, temperature) for row in zip(MEAN, VARIANCE, TARGETS, strict=True)]
    np.testing.assert_allclose(label_log_likelihood(MEAN, VARIANCE, TARGETS, temperature), likely, rtol=1e-9)
    shared = label_log_likelihood(MEAN, VARIANCE[:, :1], TARGETS, temperature)
    np.testing.assert_allclose(shared, label_log_likelihood(MEAN, VARIANCE[:, [0] * 5], TARGETS, temperature))


@given(hnp.arrays(np.float64, 4, elements=st.floats(-1e300, 1e300)))
def test_extreme_logits(logits: np.ndarray) -> None:
    p = sigmoid(logits)
    assert ((p >= 0) & (p <= 1)).all()
    np.testing.assert_allclose(p + sigmoid(-logits), 1)
    assert math.isfinite(float(label_entropy(p)))


def test_a_sure_label_that_is_wrong_costs_its_logit() -> None:
    found = label_log_likelihood(np.array([[800.0, -50.0]]), np.zeros((1, 2)), np.array([[0, 0]]))
    assert found[0] == pytest.approx(-800)


def test_entropies_are_sums_over_the_labels() -> None:
    both = class_probabilities(MEAN, VARIANCE, 1.0, LINK)
    outputs = Predictive(link=LINK).undecided(GraphOutputs(MEAN, VARIANCE))
    total = [sum(reference.entropy([p, 1 - p]) for p in row) for row in both[0]]
    plain = [sum(reference.entropy([p, 1 - p]) for p in row) for row in both[1]]
    assert outputs.total is not None
    assert outputs.epistemic is not None
    np.testing.assert_allclose(outputs.total, total, rtol=1e-12)
    np.testing.assert_allclose(outputs.score, total)
    np.testing.assert_allclose(outputs.epistemic, np.maximum(np.subtract(total, plain), 0), atol=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_sets_of_each_label_by_itself(level: float) -> None:
    p = link_approx(MEAN, VARIANCE, 1.0, LINK)
    held_out = np.random.default_rng(1).uniform(size=(40, 5))
    found = LabelSets(held_out).members(p, level)
    for b, row in enumerate(p):
        for k, one in enumerate(row):
            largest = reference.quantile_of(held_out[:, k].tolist(), level)
            expected = [one <= largest or one < 0.5, 1 - one <= largest or one >= 0.5]
            assert found[b, k].tolist() == expected
    assert found.any(axis=2).all()


def test_sets_hold_the_truth_as_often_as_they_say() -> None:
    rng, level, held = np.random.default_rng(2), 0.9, []
    for _ in range(300):
        p = rng.beta(0.5, 0.5, size=(60, 2))
        y = (rng.uniform(size=p.shape) < p).astype(int)
        scores = np.take_along_axis(label_set_scores(p), y[..., np.newaxis], axis=2)[..., 0]
        member = LabelSets(scores[:50]).members(p[50:], level)
        held.append(np.take_along_axis(member, y[50:, :, np.newaxis], axis=2).mean(axis=(0, 2)))
    assert (np.mean(held, axis=0) > level - 0.01).all()
