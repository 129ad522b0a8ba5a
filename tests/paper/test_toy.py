"""`python -m paper toy` on made-up data: every row against the oracle."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paper.fitted import Problem
from paper.regression_networks import GaussianModel, Patience, Shape, train_network, without_biases
from paper.toys import run as toy
from paper.toys.greedy import inputs_to_match, match
from paper.toys.orders import orders, selections
from paper.toys.predictives import (
    WHOLE,
    PaperFitted,
    dead_among,
    subnetwork,
    whole_network,
)
from tests import reference

PRIOR = 3.0
Jacobian = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(scope="module")
def fitted() -> PaperFitted:
    """2 x 6 units, D = 6 + 36 + 6, of which the first layer's unit 0 never fires."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 1))
    points = {"near": rng.normal(size=(5, 1)), "away": rng.normal(size=(4, 1)) + 4}
    network = Shape(6, 2).network(1, 0)
    assert isinstance(network, nn.Sequential)
    first = network[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight[0], first.bias[0] = 0.0, -1.0
    return PaperFitted(without_biases(network), Problem("made up", x, np.sin(x), points), 0)


@pytest.fixture(scope="module")
def jacobian(fitted: PaperFitted) -> dict[str, Jacobian]:
    """By the oracle, (n, 1, D): of the training data and of both sets of points."""
    sets = {"train": fitted.problem.x, **fitted.problem.points}
    return {name: reference.full_jacobian(fitted.model, torch.as_tensor(x))[1] for name, x in sets.items()}


def expected(fitted: PaperFitted, jacobian: dict[str, Jacobian], kept: list[int], prior: float) -> Jacobian:
    """Variances with noise at "away" of a posterior over `kept`, all others fixed."""
    training = jacobian["train"][:, :, kept]
    mean = np.zeros((len(training), 1))
    precision = reference.posterior_precision(mean, training, "regression", prior, fitted.sigma_noise)
    return reference.variance(jacobian["away"][:, :, kept], precision)[:, 0] + fitted.sigma_noise**2


def test_inference_is_over_weights_only(fitted: PaperFitted) -> None:
    assert fitted.total == 6 + 36 + 6 == Shape(6, 2).weights(1)
    assert Shape(50, 2).weights(1) == 2600
    assert Shape(100, 2).weights(11) == 11_200


def test_noise_is_the_root_mean_square_residual(fitted: PaperFitted) -> None:
    with torch.no_grad():
        residual = fitted.model.double()(torch.as_tensor(fitted.problem.x)).numpy() - fitted.problem.y
    assert fitted.sigma_noise == pytest.approx(np.sqrt(np.mean(residual**2)))


def test_methods_over_the_whole_network_agree_with_the_oracle(
    fitted: PaperFitted, jacobian: dict[str, Jacobian]
) -> None:
    found = whole_network(fitted, {name: fitted.jacobian(x) for name, x in fitted.problem.points.items()})
    noise, away, training = fitted.sigma_noise**2, jacobian["away"][:, 0], jacobian["train"]
    head = list(range(42, 48))
    precision = reference.posterior_precision(np.zeros((30, 1)), training, "regression", PRIOR, fitted.sigma_noise)
    covariance = np.linalg.inv(precision)
    assert fitted.head.tolist() == head
    everything = list(range(48))
    wanted = {
        "full": expected(fitted, jacobian, everything, PRIOR),
        "diagonal": (away**2 / np.diag(precision)).sum(1) + noise,
        "last layer": np.array([row[head] @ covariance[np.ix_(head, head)] @ row[head] for row in away]) + noise,
        "last layer, alone": expected(fitted, jacobian, head, PRIOR * 6 / 48),
        "MAP": np.full(4, noise),
    }
    assert set(found) == set(WHOLE) == set(wanted)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name]["away"], values, rtol=1e-9)


def test_subnetworks_have_the_right_size_and_a_scaled_prior(fitted: PaperFitted, jacobian: dict[str, Jacobian]) -> None:
    points = {"away": fitted.jacobian(fitted.problem.points["away"])}
    for name, by_size in selections(fitted, [5, 20], [5]).items():
        for size, indices in by_size.items():
            assert len(set(indices.tolist())) == size, name
            found = subnetwork(fitted, indices, points)["away"]
            np.testing.assert_allclose(
                found, expected(fitted, jacobian, indices.tolist(), PRIOR * size / 48), rtol=1e-9
            )


def test_wasserstein_takes_dead_weights_unless_told_not_to(fitted: PaperFitted) -> None:
    dead = dead_among(fitted, torch.arange(fitted.total))
    assert dead >= 7
    chosen = selections(fitted, [7], [])
    assert dead_among(fitted, chosen["wasserstein"][7]) == 7
    assert dead_among(fitted, chosen["wasserstein, live"][7]) == 0


def test_weights_are_ranked_by_the_oracles_scores(fitted: PaperFitted, jacobian: dict[str, Jacobian]) -> None:
    found, training = orders(fitted), jacobian["train"]
    precision = reference.posterior_precision(np.zeros((30, 1)), training, "regression", PRIOR, fitted.sigma_noise)
    wanted = {
        "leverage": reference.leverage(training, precision),
        "gradient": np.square(training[:, 0]).mean(0),
        "wasserstein": np.diag(np.linalg.inv(precision)),
    }
    live = np.flatnonzero(wanted["gradient"])  # the others' scores are equal
    for name, scores in wanted.items():
        order = np.array([place for place in found[name].tolist() if place in live])
        np.testing.assert_array_equal(order, live[np.argsort(-scores[live], kind="stable")])


@given(seed=st.integers(0, 10**6), pool=st.integers(1, 9), rows=st.integers(1, 12), data=st.data())
def test_each_weight_is_the_best_next_one(seed: int, pool: int, rows: int, data: st.DataObject) -> None:
    size, scale = data.draw(st.integers(1, pool)), data.draw(st.sampled_from([0.1, 1.0]))
    generator = np.random.default_rng(seed)
    j = generator.normal(size=(rows, pool))
    training = generator.normal(size=(2 * rows, pool))
    curvature = training.T @ training
    full = np.einsum("ns,st,nt->n", j, np.linalg.inv(curvature + np.eye(pool)), j)
    precision = curvature + scale * np.eye(pool)
    found = match(torch.tensor(precision), torch.tensor(j), size, 0.3, torch.tensor(full))
    assert found.tolist() == reference.greedy(precision, j, size, 0.3, full)


def test_the_greedy_choice_is_closer_to_the_full_network_than_others(fitted: PaperFitted) -> None:
    jacobians = {"matched": fitted.jacobian(inputs_to_match(fitted))}
    full = whole_network(fitted, jacobians)["full"]
    found = {
        name: toy.divergences(full, subnetwork(fitted, by_size[8], jacobians))["matched"]
        for name, by_size in selections(fitted, [8], [8]).items()
    }
    assert found["greedy"] < min(found["random"], found["gradient"], found["wasserstein"])


def test_divergence_is_zero_from_itself_and_that_of_gaussians() -> None:
    full, other = np.array([1.0, 4.0]), np.array([2.0, 1.0])
    assert toy.divergences({"near": full}, {"near": full}) == {"near": 0.0}
    each = [0.5 * (f / o - 1 - np.log(f / o)) for f, o in zip(full, other, strict=True)]
    assert toy.divergences({"near": full}, {"near": other})["near"] == pytest.approx(np.mean(each))


def test_noise_is_learnt_with_the_network() -> None:
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.normal(size=(200, 1))).float()
    y = 0.5 * x + 0.2 * torch.as_tensor(rng.normal(size=(200, 1))).float()
    model = GaussianModel(Shape(4, 1).network(1, 0))
    train_network(model, (x, y), (x, y), Patience(1500, 1500, every=100), 0)
    with torch.no_grad():
        residual = float((model(x) - y).square().mean().sqrt())
    assert float(model.log_sigma.detach().exp()) == pytest.approx(residual, rel=0.05)
    assert residual == pytest.approx(0.2, rel=0.2)


def test_summary_is_by_toy_method_share_and_set() -> None:
    runs = [
        {"problem": "t", "divergence": {"random": {"0.5": {"near": value, "away": 2 * value}}}} for value in (1.0, 3.0)
    ]
    assert toy.summarise(runs) == {
        "t": {"random": {"0.5": {"near": {"mean": 2.0, "std": 1.0}, "away": {"mean": 4.0, "std": 2.0}}}}
    }
