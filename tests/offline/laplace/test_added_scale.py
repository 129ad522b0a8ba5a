"""The prior variance of added weights: the largest whose cost, with its standard error, is within the budget."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.offline.config import FitConfig
from demur.offline.data.likelihood import Classification, Likelihood, Regression
from demur.offline.laplace.added_scale import LEAST_SCALE, MOST_VARIANCE, Held, choose_scale
from demur.offline.laplace.temperature import suited

CLASSES = 3
SURE = Classification(CLASSES, 0.8, link="probit-shared", map_temperature=0.8)


def classified(count: int, seed: int = 0, right: float = 0.9) -> Held:
    """Most labels are the largest logit's."""
    rng = np.random.default_rng(seed)
    mean = 3 * rng.normal(size=(count, CLASSES))
    targets = np.where(rng.random(count) < right, mean.argmax(1), rng.integers(0, CLASSES, count))
    return Held(mean, targets, 0.1 * rng.random((count, 1)), rng.random(count))


def measured(count: int, noise: float) -> Held:
    rng = np.random.default_rng(1)
    mean = rng.normal(size=(count, 2))
    targets = mean + noise * rng.normal(size=mean.shape)
    return Held(mean, targets, 0.01 * noise**2 * rng.random((count, 2)), rng.random(count))


def cost(likelihood: Likelihood, held: Held, scale: float, *, fitted: bool) -> tuple[float, float]:
    """Mean and standard error, one example at a time."""
    own = likelihood
    if fitted and isinstance(own, Classification):
        own = suited(own, held.mean, held.variance(scale, own), held.targets)
    lost = []
    for n in range(len(held.mean)):
        one = slice(n, n + 1)
        with_none, with_it = (
            float(which.log_likelihood(held.mean[one], variance[one], held.targets[one])[0])
            for which, variance in ((likelihood, 0 * held.subnetwork), (own, held.variance(scale, own)))
        )
        lost.append(with_none - with_it)
    mean = sum(lost) / len(lost)
    return mean, math.sqrt(sum((one - mean) ** 2 for one in lost) / len(lost)) / math.sqrt(len(lost))


def plain(held: Held) -> Classification:
    found = suited(SURE, held.mean, 0 * held.subnetwork, held.targets)
    return replace(found, map_temperature=found.temperature)


@pytest.mark.parametrize("budget", [0.005, 0.05])
@pytest.mark.parametrize("count", [40, 400])
def test_it_spends_the_budget_and_no_more(count: int, budget: float) -> None:
    held = classified(count)
    likelihood = plain(held)
    found = choose_scale(FitConfig(uncertainty_budget=budget), likelihood, held)
    assert (found.paid.cost, found.paid.error) == pytest.approx(cost(likelihood, held, found.scale, fitted=True))
    assert found.paid.most <= budget
    assert sum(cost(likelihood, held, 1.05 * found.scale, fitted=True)) > budget


def test_of_a_regression_at_its_noise() -> None:
    held, likelihood = measured(300, 2.0), Regression(2, 2.0)
    found = choose_scale(FitConfig(likelihood="regression"), likelihood, held)
    assert (found.paid.cost, found.paid.error) == pytest.approx(cost(likelihood, held, found.scale, fitted=False))
    assert found.paid.most <= 0.005
    assert found.paid.likelihood == likelihood


def test_a_temperature_that_is_given_stays() -> None:
    held = classified(200)
    found = choose_scale(FitConfig(temperature=0.8), SURE, held)
    assert found.paid.likelihood == SURE


@given(seed=st.integers(0, 1000), count=st.sampled_from([4, 30, 200]), right=st.sampled_from([0.3, 0.8, 1.0]))
def test_what_it_costs_is_within_the_budget_or_nothing_less_is_tried(seed: int, count: int, right: float) -> None:
    held = classified(count, seed, right)
    likelihood = plain(held)
    found = choose_scale(FitConfig(), likelihood, held)
    least = LEAST_SCALE * likelihood.temperature**2
    assert found.paid.most <= 0.005 or found.scale == pytest.approx(least, rel=0.02)
    most = MOST_VARIANCE * likelihood.temperature**2
    assert found.scale * float(np.median(held.added)) <= most * (1 + 1e-9)


def test_a_network_that_guesses_ends_at_the_bound() -> None:
    held = classified(500, right=0.0)
    likelihood = plain(held)
    found = choose_scale(FitConfig(), likelihood, held)
    assert found.scale * np.median(held.added) == pytest.approx(MOST_VARIANCE * likelihood.temperature**2)
    assert "a larger one was not tried" in found.explanation


def test_the_sentence_says_what_it_costs() -> None:
    held = classified(400)
    found = choose_scale(FitConfig(), plain(held), held)
    assert f"{found.paid.cost:.2g} nats" in found.explanation
    assert "on 400 held-out examples, of the 0.005 allowed" in found.explanation


def test_no_distance_is_no_division_by_zero() -> None:
    held = replace(classified(50), added=np.zeros(50))
    assert math.isfinite(choose_scale(FitConfig(), plain(held), held).scale)
