"""Temperatures on held-out data, alone and beside variances."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from offline.data.held_out import HeldOut
from offline.data.likelihood import Classification
from offline.laplace.temperature import TEMPERATURE_GRID, fit_temperature, plain_temperature, suited


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_a_known_temperature_is_found_again(temperature: float, spread: float) -> None:
    """Labels drawn from softmax(f / sqrt(T^2 + pi / 8 v))."""
    rng = np.random.default_rng(0)
    mean = 3 * rng.normal(size=(20_000, 4))
    variance = spread * temperature**2 * rng.uniform(size=mean.shape)
    scaled = mean / np.sqrt(temperature**2 + math.pi / 8 * variance)
    targets = (scaled + rng.gumbel(size=mean.shape)).argmax(axis=1)
    assert fit_temperature(mean, variance, targets) == pytest.approx(temperature, rel=0.06)


def test_the_temperature_stays_on_its_grid() -> None:
    """Labels that are always right ask for T -> 0, labels that are always wrong for T -> infinity."""
    mean, variance = 5 * np.eye(3), np.zeros((3, 3))
    assert fit_temperature(mean, variance, np.array([0, 1, 2])) == pytest.approx(0.1)
    assert fit_temperature(mean, variance, np.array([1, 2, 0])) == pytest.approx(10)


def drawn(temperature: float, count: int, sharpness: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and labels drawn from softmax(f / T)."""
    rng = np.random.default_rng(0)
    mean = sharpness * rng.normal(size=(count, 4))
    targets = (mean / temperature + rng.gumbel(size=mean.shape)).argmax(axis=1)
    return torch.as_tensor(mean, dtype=torch.float32), torch.as_tensor(targets)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_plain_temperature_is_found_from_many_examples(temperature: float) -> None:
    found = plain_temperature(nn.Identity(), HeldOut(*drawn(temperature, 5000)))
    assert found == pytest.approx(temperature, rel=0.1)


def test_few_examples_leave_the_network_as_it_is() -> None:
    mean, targets = drawn(1.0, 30)
    assert plain_temperature(nn.Identity(), HeldOut(mean, targets)) == pytest.approx(1.0, rel=0.05)
    best = fit_temperature(mean.numpy(), np.zeros((30, 4)), targets.numpy())
    assert abs(math.log(best)) > 0.1


@pytest.mark.parametrize("count", [20, 1000])
def test_examples_that_are_all_right_do_not_make_the_network_certain(count: int) -> None:
    """Every label is the largest logit's, by a margin of 4: the likelihood alone asks for the end of the grid."""
    targets = torch.arange(count) % 3
    mean = 4.0 * nn.functional.one_hot(targets, 3).float()
    assert fit_temperature(mean.numpy(), np.zeros((count, 3)), targets.numpy()) == TEMPERATURE_GRID[0]
    found = plain_temperature(nn.Identity(), HeldOut(mean, targets))
    error = float(torch.softmax(mean[0] / found, 0)[1])
    assert 0.1 / count < error < 0.5  # about as often as an error was seen in so many, and one more


def test_the_suited_temperature_is_that_of_a_fine_grid() -> None:
    mean, targets = (part.numpy() for part in drawn(1.0, 400))
    variance = np.random.default_rng(1).exponential(2.0, (400, 1))
    likelihood = Classification(4, 1.0, link="probit-shared", map_temperature=1.0)
    found, value = suited(likelihood, mean, variance, targets)

    def at(temperature: float) -> float:
        own = Classification(4, temperature, link="probit-shared", map_temperature=1.0)
        return float(own.log_likelihood(mean, variance, targets).mean())

    inside = TEMPERATURE_GRID[(TEMPERATURE_GRID >= 0.5) & (TEMPERATURE_GRID <= 2.0)]
    assert value == pytest.approx(at(found.temperature))
    assert value >= max(map(at, inside)) - 1e-4
    assert found.plain_temperature == 1.0
