"""The prior variance of added weights: the largest whose cost, with its standard error, is within the budget."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.offline.config import ADDED_BUDGET, LEAST_BUDGET, LOSS_SHARE, FitConfig
from demur.offline.data.likelihood import Classification, Likelihood, Regression
from demur.offline.features.gate import Gate
from demur.offline.laplace.added_scale import ERRORS, LEAST_SCALE, MOST_SCALE, RISE, Held, Paid, choose_scale
from demur.offline.laplace.temperature import suited
from demur.offline.runtime.arrays import Array

CLASSES = 3
SURE = Classification(CLASSES, 0.8, link="probit-shared", map_temperature=0.8)


def classified(count: int, seed: int = 0, right: float = 0.9) -> Held:
    """Most labels are the largest logit's."""
    rng = np.random.default_rng(seed)
    mean = 6 * rng.normal(size=(count, CLASSES))
    targets = np.where(rng.random(count) < right, mean.argmax(1), rng.integers(0, CLASSES, count))
    return held_of(mean, targets, 0.1 * rng.random((count, 1)), rng.random(count))


def held_of(mean: Array, targets: Array, subnetwork: Array, added: Array) -> Held:
    gate = Gate.fit(subnetwork.mean(axis=1), added)
    return Held(mean, targets, gate.of(subnetwork, added, np.ones(1))[0], gate)


def measured(count: int, noise: float) -> Held:
    rng = np.random.default_rng(1)
    mean = rng.normal(size=(count, 2))
    targets = mean + noise * rng.normal(size=mean.shape)
    return held_of(mean, targets, 0.01 * noise**2 * rng.random((count, 2)), rng.random(count))


def cost(likelihood: Likelihood, held: Held, scale: float, *, fitted: bool) -> tuple[float, float]:
    """Mean and standard error, one example at a time."""
    own = likelihood
    if fitted and isinstance(own, Classification):
        own = suited(own, held.mean, scale * held.variance, held.targets)
    lost = []
    for n in range(len(held.mean)):
        one = slice(n, n + 1)
        with_none, with_it = (
            float(which.log_likelihood(held.mean[one], variance[one], held.targets[one])[0])
            for which, variance in ((likelihood, 0 * held.variance), (own, scale * held.variance))
        )
        lost.append(with_none - with_it)
    mean = sum(lost) / len(lost)
    return mean, math.sqrt(sum((one - mean) ** 2 for one in lost) / len(lost)) / math.sqrt(len(lost))


def charged(mean: float, error: float) -> float:
    """A gain is believed where it is more than its error."""
    if mean >= 0:
        return mean + error
    return error if mean > -error else mean + 2 * error


def test_a_gain_by_chance_buys_nothing() -> None:
    for mean, error in ((0.01, 0.02), (-0.01, 0.02), (-0.02, 0.02), (-0.5, 0.02), (0.0, 0.0)):
        assert Paid(mean, error, SURE, shares_kept=True).most == pytest.approx(charged(mean, error))


def plain(held: Held) -> Classification:
    found = suited(SURE, held.mean, 0 * held.variance, held.targets)
    return replace(found, map_temperature=found.temperature)


@pytest.mark.parametrize("budget", [0.0025, 0.005])
@pytest.mark.parametrize("count", [40, 400])
def test_it_spends_the_budget_and_no_more(count: int, budget: float) -> None:
    held = classified(count)
    likelihood = plain(held)
    found = choose_scale(FitConfig(uncertainty_budget=budget), likelihood, held)
    assert (found.paid.cost, found.paid.error) == pytest.approx(cost(likelihood, held, found.scale, fitted=True))
    assert found.paid.most <= budget
    assert charged(*cost(likelihood, held, 1.05 * found.scale, fitted=True)) > budget


def test_of_a_regression_at_its_noise() -> None:
    held, likelihood = measured(300, 2.0), Regression(2, 2.0)
    found = choose_scale(FitConfig(likelihood="regression"), likelihood, held)
    assert (found.paid.cost, found.paid.error) == pytest.approx(cost(likelihood, held, found.scale, fitted=False))
    assert found.paid.most <= ADDED_BUDGET == found.budget
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
    least, most = (bound * likelihood.temperature**2 for bound in (LEAST_SCALE, MOST_SCALE))
    assert LEAST_BUDGET <= found.budget <= ADDED_BUDGET
    assert found.paid.most <= found.budget or found.scale == pytest.approx(least, rel=0.02)
    assert found.scale <= most * (1 + 1e-9)


def test_a_network_that_guesses_ends_at_the_bound() -> None:
    held = classified(500, right=0.0)
    likelihood = plain(held)
    found = choose_scale(FitConfig(), likelihood, held)
    assert found.scale == pytest.approx(MOST_SCALE * likelihood.temperature**2)
    assert "more was not tried" in found.explanation


def test_the_sentence_says_what_it_costs() -> None:
    held = classified(400)
    found = choose_scale(FitConfig(), plain(held), held)
    assert f"{found.paid.cost:.2g} nats" in found.explanation
    assert "on 400 held-out examples, of the 0.004 allowed" in found.explanation


@pytest.mark.parametrize(
    ("loss", "budget"),
    [(1.0, ADDED_BUDGET), (0.05, 0.05 * LOSS_SHARE), (1e-4, LEAST_BUDGET)],
    ids=["much", "some", "none"],
)
def test_the_budget_is_a_share_of_the_loss_between_two_limits(loss: float, budget: float) -> None:
    held = classified(200)
    p = np.exp(-loss)
    others = np.log((1 - p) / (CLASSES - 1))
    mean = np.full((200, CLASSES), others)
    mean[np.arange(200), held.targets] = -loss
    one = Classification(CLASSES, 1.0, link="probit-shared", map_temperature=1.0)
    found = choose_scale(FitConfig(temperature=1.0), one, replace(held, mean=mean))
    assert found.budget == pytest.approx(budget)


def rare(count: int, seed: int = 0) -> Held:
    """Two classes, of which one is two in a hundred, and of unusual examples no more; logits as they should be."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(-7, 2.5, count)
    targets = (rng.random(count) < 1 / (1 + np.exp(-logit))).astype(int)
    mean = np.stack([np.zeros(count), logit], axis=1)
    return held_of(mean, targets, 0.1 * rng.random((count, 1)), rng.lognormal(-3, 1, count))


@pytest.mark.parametrize("count", [300, 3000])
def test_a_rare_class_keeps_its_share(count: int) -> None:
    held = rare(count)
    likelihood = Classification(2, 1.0, link="probit-shared", map_temperature=1.0)
    found = choose_scale(FitConfig(uncertainty_budget=0.02, temperature=1.0), likelihood, held)

    def announced(scale: float) -> list[float]:
        return [likelihood.probabilities(held.mean[[n]], scale * held.variance[[n]])[0, 1] for n in range(count)]

    def rise(scale: float) -> float:
        """Mean and one standard error."""
        each = [p - q for p, q in zip(announced(scale), usual, strict=True)]
        mean = sum(each) / count
        return mean + math.sqrt(sum((one - mean) ** 2 for one in each) / count / count)

    usual = announced(0.0)
    share = sum(usual) / count
    most = max(RISE * share, ERRORS * math.sqrt(share * (1 - share) / count))
    assert found.paid.shares_kept
    assert found.explanation.endswith("announce a class too often")
    assert rise(found.scale) <= most
    assert rise(1.05 * found.scale) > most
    assert found.paid.most < 0.01  # of the 0.02 that the budget allows


def test_no_distance_is_no_division_by_zero() -> None:
    some = classified(50)
    held = held_of(some.mean, some.targets, np.zeros((50, 1)), np.zeros(50))
    found = choose_scale(FitConfig(), plain(held), held)
    assert math.isfinite(found.scale)
    assert not held.variance.any()


def test_of_many_classes_no_single_example_decides() -> None:
    """As many as examples, of which one is unlike the others: the budget is what limits."""
    count, classes = 500, 400
    rng = np.random.default_rng(0)
    targets = rng.integers(0, classes, count)
    mean = rng.normal(0, 0.3, (count, classes))
    mean[np.arange(count), targets] += 12.0
    mean[0, (targets[0] + 1) % classes] += 7.0
    foreign = np.where(np.arange(count) == 0, 3.0, 0.001)
    held = held_of(mean, targets, 0.01 * np.ones((count, 1)), foreign)
    likelihood = Classification(classes, 1.0, link="probit-shared", map_temperature=1.0)
    found = choose_scale(FitConfig(uncertainty_budget=0.004, temperature=1.0), likelihood, held)
    assert not found.explanation.endswith("announce a class too often")
    assert found.paid.most == pytest.approx(0.004, rel=0.1)
