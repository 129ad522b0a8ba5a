"""Temperatures on held-out data, alone and beside variances."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from demur.offline.data.held_out import HeldOut
from demur.offline.data.likelihood import Classification
from demur.offline.laplace.temperature import LEAST, SPREAD, plain_temperature, suited
from demur.service.maths.predictive import Link
from tests import reference

LIKELIHOOD = Classification(4, 1.0, link="probit-shared", map_temperature=1.0)


def drawn(temperature: float, count: int, variance: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn from softmax(f / sqrt(T^2 + pi / 8 v))."""
    rng = np.random.default_rng(0)
    mean = 3 * rng.normal(size=(count, 4))
    scaled = mean / reference.probit_divisor(variance, temperature)
    return mean, (scaled + rng.gumbel(size=mean.shape)).argmax(axis=1)


def best_on_a_grid(mean: np.ndarray, variance: np.ndarray, targets: np.ndarray, *, shrunk: bool = True) -> float:
    """By the definition; without the prior of T, the likeliest one."""

    def worth(temperature: float) -> float:
        total = 0.0
        for f, v, y in zip(mean, variance, targets, strict=True):
            scaled = f / reference.probit_divisor(v.mean(), temperature)
            total += scaled[y] - math.log(np.exp(scaled - scaled.max()).sum()) - scaled.max()
        return total - (math.log(temperature) ** 2 / (2 * SPREAD**2) if shrunk else 0.0)

    return float(max(np.geomspace(0.1, 7, 400), key=worth))


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("spread", [0.0, 3.0])
@pytest.mark.parametrize("link", ["probit", "probit-shared"])
def test_a_known_temperature_is_found_again(temperature: float, spread: float, link: Link) -> None:
    variance = spread * temperature**2 * np.random.default_rng(1).uniform(size=(20_000, 1))
    mean, targets = drawn(temperature, 20_000, variance)
    found = suited(Classification(4, link=link), mean, variance, targets)
    assert found.temperature == pytest.approx(temperature, rel=0.06)


@pytest.mark.parametrize("count", [5, 40, 300])
def test_it_is_that_of_a_fine_grid(count: int) -> None:
    variance = np.random.default_rng(1).exponential(2.0, (count, 1))
    mean, targets = drawn(1.0, count, variance)
    found = suited(LIKELIHOOD, mean, variance, targets)
    assert found.temperature == pytest.approx(best_on_a_grid(mean, variance, targets), rel=0.02)
    assert found.plain_temperature == 1.0


def test_few_examples_say_little() -> None:
    mean, targets = drawn(1.0, 30)
    variance = np.zeros((30, 1))
    found = abs(math.log(suited(LIKELIHOOD, mean, variance, targets).temperature))
    assert found < abs(math.log(best_on_a_grid(mean, variance, targets, shrunk=False)))


@pytest.mark.parametrize("count", [20, 1000])
def test_examples_that_are_all_right_do_not_make_the_network_certain(count: int) -> None:
    """Every label is the largest logit's, by a margin of 4: the likelihood alone asks for T -> 0."""
    targets = torch.arange(count) % 3
    mean = 4.0 * nn.functional.one_hot(targets, 3).float()
    found = plain_temperature(Classification(3), nn.Identity(), HeldOut(mean, targets))
    assert LEAST < found < 1
    error = float(torch.softmax(mean[0] / found, 0)[1])
    assert error > 1e-3 / count


def test_labels_that_are_always_wrong_make_nothing_sure() -> None:
    mean = np.tile(5 * np.eye(3), (100, 1))
    found = suited(Classification(3), mean, np.zeros((300, 1)), np.tile([1, 2, 0], 100))
    assert found.probabilities(mean[:1], np.zeros((1, 1))) == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize("unit", [0.001, 0.02, 20.0, 500.0])
def test_logits_of_another_unit_have_a_temperature_of_another_unit(unit: float) -> None:
    """As of cosines without their scale, or of a network that was trained for too long."""
    mean, targets = drawn(1.0, 20_000)
    found = suited(LIKELIHOOD, unit * mean, np.zeros((20_000, 1)), targets)
    assert found.temperature == pytest.approx(unit, rel=0.06)


def test_the_plain_temperature_is_that_of_the_outputs() -> None:
    mean, targets = drawn(2.0, 1000)
    found = plain_temperature(LIKELIHOOD, nn.Identity(), HeldOut(torch.as_tensor(mean), torch.as_tensor(targets)))
    assert found == suited(LIKELIHOOD, mean, np.zeros((1000, 1)), targets).temperature
