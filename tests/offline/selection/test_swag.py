"""SWAG's trajectory against plain SGD in float64."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from demur.offline.selection.registry import select
from demur.offline.selection.wasserstein_swag import Trajectory, trajectory_variance
from tests.support.selections import Batches, changed, context, problem


def linear_problem() -> tuple[nn.Linear, Batches]:
    torch.manual_seed(0)
    scale = torch.tensor([1.0, 0.5, 2.0])
    return nn.Linear(3, 2), [(scale * torch.randn(5, 3), 2 * torch.randn(5, 2) + 1) for _ in range(3)]


def swag_variance(model: nn.Linear, batches: Batches, t: Trajectory) -> np.ndarray:
    """Plain SGD with momentum on mean (f - y)^2 / (2 sigma^2), one snapshot an epoch, float64.

    sigma^2 is the variance of the targets, each output about its own mean.
    """
    w, b = (p.detach().double().numpy().copy() for p in (model.weight, model.bias))
    velocity_w, velocity_b = np.zeros_like(w), np.zeros_like(b)
    noise = torch.cat([y for _, y in batches]).double().numpy().var(axis=0).mean()
    taken = []
    for _ in range(t.snapshots):
        for step, (inputs, targets) in enumerate(batches):
            x, y = inputs.double().numpy(), targets.double().numpy()
            error = (x @ w.T + b - y) / (noise * y.size)
            velocity_w = t.momentum * velocity_w + error.T @ x + t.weight_decay * w
            velocity_b = t.momentum * velocity_b + error.sum(axis=0) + t.weight_decay * b
            share = (1 + math.cos(math.pi * step / len(batches))) / 2 if t.schedule == "cosine-cyclic" else 1
            w, b = w - share * t.learning_rate * velocity_w, b - share * t.learning_rate * velocity_b
        taken.append(np.concatenate([w.reshape(-1), b]))
    return np.var(taken, axis=0)


@pytest.mark.parametrize(
    "trajectory",
    [
        Trajectory(7, 0.1, 0.0, 0.0, "constant", 0),
        Trajectory(2, 0.05, 0.9, 0.1, "constant", 0),
        Trajectory(5, 0.2, 0.9, 0.01, "cosine-cyclic", 0),
        Trajectory(4, 0.1, 0.0, 0.0, "cosine-cyclic", 0),
    ],
)
def test_swag_takes_the_largest_variance_along_the_trajectory(trajectory: Trajectory) -> None:
    model, batches = linear_problem()
    expected = swag_variance(model, batches, trajectory)
    found = trajectory_variance(context(model, batches, 1, likelihood="regression"), trajectory)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    options = {name: value for name, value in vars(trajectory).items() if name != "seed"}
    for size in range(1, 9):
        chosen = select("wasserstein-swag", context(model, batches, size, likelihood="regression"), options)
        assert chosen.indices.tolist() == sorted(np.argsort(-expected)[:size])
        assert chosen.dead_weights is None


def test_by_default_it_takes_forty_snapshots_with_momentum() -> None:
    model, batches = linear_problem()
    expected = swag_variance(model, batches, Trajectory(40, 0.01, 0.9, 0.0, "constant", 0))
    for size in range(1, 9):
        given = context(model, batches, size, likelihood="regression")
        assert select("wasserstein-swag", given, {}).indices.tolist() == sorted(np.argsort(-expected)[:size])


def test_a_cycle_ends_with_next_to_no_step() -> None:
    rates = list(Trajectory(2, 0.4, 0.0, 0.0, "cosine-cyclic", 0).rates(100))
    assert rates[0] == 0.4
    assert rates[50] == pytest.approx(0.2)
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.001 * rates[0]
    assert list(Trajectory(2, 0.4, 0.0, 0.0, "constant", 0).rates(3)) == [0.4, 0.4, 0.4]


def test_a_shuffling_loader_follows_the_seed() -> None:
    model, batches = problem()
    data = TensorDataset(torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches]))
    loader: DataLoader[tuple[Tensor, ...]] = DataLoader(data, batch_size=4, shuffle=True)

    def variance(seed: int) -> Tensor:
        given = context(model, batches, 5)
        shuffled = replace(given, job=changed(given.job, train=loader))
        return trajectory_variance(shuffled, Trajectory(3, 0.1, 0.9, 0.0, "constant", seed))

    first, again, other = variance(0), variance(0), variance(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_seed_is_an_option_and_by_default_the_fits() -> None:
    given = context(*problem(), 5)
    found = [
        select("wasserstein-swag", given, {"snapshots": 3} | more).indices for more in ({}, {"seed": 0}, {"seed": 9})
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])  # the loader does not shuffle: nothing is random


def test_it_does_not_diverge_on_a_network_that_fits_well() -> None:
    """Residuals of one hundredth of the targets: the default steps must not grow as the square of that."""
    model, batches = linear_problem()
    near = [(x, model(x).detach() + 0.01 * torch.randn(len(x), 2)) for x, _ in batches]
    assert len(select("wasserstein-swag", context(model, near, 3, likelihood="regression"), {}).indices) == 3


def test_it_says_that_it_diverged() -> None:
    given = context(*linear_problem(), 3, likelihood="regression")
    with pytest.raises(ValueError, match=r"weights diverged at learning_rate=10000\.0; give a smaller one"):
        select("wasserstein-swag", given, {"learning_rate": 1e4, "snapshots": 50})
