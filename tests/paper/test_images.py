"""Baselines, posteriors and metrics of the paper's image experiments, on small networks and made-up data."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.experiments.frontier.methods import Method
from benchmarks.experiments.frontier.networks import PhotoNetwork
from benchmarks.experiments.training import Recipe, paper_schedule, train
from demur.offline.data.likelihood import class_log_likelihood
from demur.offline.runtime.progress import silent
from paper.images.baselines.diagonal_laplace import DiagonalLaplace
from paper.images.baselines.natural_gradient import (
    STARTS,
    VariationalNetwork,
    ivon,
    sampled_weights,
    variational,
)
from paper.images.baselines.point import logits, plain, tempered, tempered_ensemble
from paper.images.baselines.swag import Moments, Walk, sampled
from paper.images.baselines.weight_samples import averaged, gaussian_samples, parameters_of
from paper.images.networks import resnet
from paper.images.problems import Problem
from paper.images.quality import by_kind, metrics, rejection, score
from paper.images.summary import summarise
from paper.published import image_tables, ood_auroc
from tests import reference

CPU = torch.device("cpu")


def table_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).eval()


def examples(count: int = 40, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, generator=generator), torch.arange(count) % 3


def test_dropout_of_a_residual_network_stands_before_the_last_convolution_of_each_block() -> None:
    for depth, blocks in ((18, 8), (50, 16)):
        model = resnet(depth, 3)(0.1)
        assert sum(isinstance(module, nn.Dropout) for module in model.modules()) == blocks
        total, plain_total = (sum(p.numel() for p in m.parameters()) for m in (model, resnet(depth, 3)(0.0)))
        assert total == plain_total


def test_the_papers_schedule_falls_by_ten_at_its_epochs() -> None:
    optimiser, schedule = paper_schedule(1, 2)(table_network(), 0, 3)
    assert schedule is not None
    rates = []
    for _ in range(9):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert rates == pytest.approx([0.1] * 3 + [0.01] * 3 + [0.001] * 3)


def test_a_temperature_spends_the_budget_and_no_more() -> None:
    model, (x, y) = table_network(), examples(300)
    y = torch.as_tensor(logits(model, x).argmax(1))  # certain and right: any temperature costs something
    found = tempered(model, (x, y), 0.05)
    outputs = logits(model, x)
    scores = {
        t: class_log_likelihood(_softmax(outputs / t), y.numpy()).mean() for t in (1.0, found.facts["temperature"])
    }
    cost = scores[1.0] - scores[found.facts["temperature"]]
    assert 0.03 < cost <= 0.05
    np.testing.assert_allclose(found.probabilities(x), _softmax(outputs / found.facts["temperature"]), rtol=1e-6)
    assert (found.probabilities(x).argmax(1) == plain(model).probabilities(x).argmax(1)).all()


def test_a_tempered_ensemble_is_the_mean_of_its_networks_at_one_temperature() -> None:
    models, (x, y) = [table_network(), table_network()], examples(300)
    torch.nn.init.normal_(models[1][0].weight, generator=torch.Generator().manual_seed(1))  # type: ignore[arg-type]
    found = tempered_ensemble(models, (x, y), 0.05)
    t = found.facts["temperature"]
    expected = np.mean([_softmax(logits(model, x) / t) for model in models], axis=0)
    np.testing.assert_allclose(found.probabilities(x), expected, rtol=1e-6)
    assert found.price == 2


def _softmax(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.stack([reference.softmax(row) for row in values])


def test_the_diagonal_curvature_and_its_variances_are_those_of_the_oracle() -> None:
    model, (x, y) = table_network(), examples()
    laplace = DiagonalLaplace(model, (x, y), (x[:20], y[:20]), seed=0)
    mean, jacobian = reference.full_jacobian(model, x)
    full = reference.posterior_precision(mean, jacobian, "classification", 0.0)
    np.testing.assert_allclose(laplace.curvature.numpy(), np.diag(full), rtol=1e-4)
    precisions = np.array([0.1, 10.0])
    outputs, found = laplace.variances(precisions)(x)
    np.testing.assert_allclose(outputs, mean, atol=1e-5)
    for number, precision in enumerate(precisions):
        exact = reference.variance(jacobian, np.diag(np.diag(full) + precision))
        np.testing.assert_allclose(found[:, :, number], exact, rtol=1e-4)


def test_a_budget_buys_a_diagonal_posterior_more_uncertainty() -> None:
    model, (x, y) = table_network(), examples()
    laplace = DiagonalLaplace(model, (x, y), (x, torch.as_tensor(logits(model, x).argmax(1))), seed=0)
    best, spent = laplace.linearised(0.0), laplace.linearised(0.05)
    assert spent.facts["prior_precision"] < best.facts["prior_precision"]
    assert spent.probabilities(x).max() < best.probabilities(x).max()
    assert laplace.sampled().probabilities(x).sum(axis=1) == pytest.approx(1)


def test_swag_keeps_the_moments_of_its_snapshots() -> None:
    snapshots = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moments = Moments(torch.zeros(5, dtype=torch.float64), torch.zeros(5, dtype=torch.float64))
    for weights in snapshots:
        moments.add(weights)
    torch.testing.assert_close(moments.mean, snapshots.mean(0))
    torch.testing.assert_close(moments.square, snapshots.square().mean(0))
    assert len(moments.deviations) == 20
    torch.testing.assert_close(moments.deviations[-1], snapshots[-1] - snapshots.mean(0))


def test_samples_of_swag_have_the_covariance_of_its_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    moments = Moments(torch.zeros(3), torch.zeros(3))
    for _ in range(12):
        moments.add(torch.randn(3, generator=generator) * torch.tensor([1.0, 0.1, 3.0]))
    drawn = torch.stack([moments.sample(generator) for _ in range(20_000)])
    wide = torch.stack(moments.deviations, dim=1)
    diagonal = torch.diag(moments.square - moments.mean.square())
    expected = diagonal / 2 + wide @ wide.T / (2 * (wide.shape[1] - 1))
    torch.testing.assert_close(drawn.T.cov(), expected, rtol=0.1, atol=0.05)
    torch.testing.assert_close(drawn.mean(0), moments.mean, rtol=0.1, atol=0.1)


def test_swag_starts_from_the_network_and_leaves_it_alone() -> None:
    model, data = PhotoNetwork().eval(), (torch.randn(16, 3, 8, 8), torch.arange(16) % 10)
    before = copy.deepcopy(model.state_dict())
    method = sampled(model, data, Walk(1, 2, 0.01), seed=0, track=silent)
    assert method.probabilities(data[0]).sum(axis=1) == pytest.approx(1)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())


def test_averages_over_samples_without_spread_are_the_network() -> None:
    model, (x, _) = table_network(), examples()
    mean = parameters_of(model)
    states = gaussian_samples(mean, {name: torch.zeros_like(value) for name, value in mean.items()}, 3, seed=0)
    np.testing.assert_allclose(averaged(model, states, {}).probabilities(x), plain(model).probabilities(x), rtol=1e-5)


def test_the_variational_network_learns_and_keeps_its_spread() -> None:
    pytest.importorskip("ivon")
    torch.manual_seed(0)
    network, data = VariationalNetwork(table_network()), examples(60)
    recipe = Recipe(4, ivon(60, STARTS["mnist"]), batch=20, around=sampled_weights)
    network.keep_spread(train(network, data, recipe, 0, CPU, silent))
    assert (network.std > 0).all()
    assert network.std.max() < 1
    assert variational(network, seed=0).probabilities(data[0]).sum(axis=1) == pytest.approx(1)


def test_metrics_are_those_of_their_definitions() -> None:
    probabilities = np.array([[0.7, 0.3], [0.6, 0.4], [0.2, 0.8]])
    found = metrics(probabilities, np.array([0, 1, 1]))
    assert found["error"] == pytest.approx(1 / 3)
    assert found["log_likelihood"] == pytest.approx(np.log([0.7, 0.4, 0.8]).mean())
    assert found["brier"] == pytest.approx((2 * 0.09 + 2 * 0.36 + 2 * 0.04) / 3)


def test_rejecting_foreign_images_first_leaves_what_is_right() -> None:
    usual, foreign = np.array([[0.99, 0.01], [0.98, 0.02]]), np.array([[0.5, 0.5], [0.6, 0.4]])
    accuracy = rejection(usual, np.array([0, 0]), foreign)
    assert accuracy[0] == 0.5
    assert accuracy[10] == 1.0
    assert accuracy[-1] == 1.0


def problem() -> Problem:
    x, y = examples(8)
    return Problem("mnist", "rotated_mnist", (x, y), (x, y), {0: x, 45: 2 * x}, y, {"other": 9 * x}, y % 2, ("a", "b"))


def test_a_method_is_scored_by_shift_and_kind() -> None:
    found = score(plain(table_network()), problem())
    assert list(found["shifts"]) == ["0", "45"]
    assert list(found["kinds"]) == ["45"]
    kinds = np.bincount(problem().kinds.numpy()) / 8
    whole = found["shifts"]["45"]["log_likelihood"]
    assert np.dot(kinds, list(found["kinds"]["45"].values())) == pytest.approx(whole)
    assert by_kind(np.full((8, 3), 1 / 3), problem()) == pytest.approx({"a": np.log(1 / 3), "b": np.log(1 / 3)})


def test_the_ordering_is_of_ours_against_each_published_method() -> None:
    def outcome(value: float) -> dict[str, Any]:
        method = Method(lambda x: np.full((len(x), 3), 1 / 3), 1.0)
        one = score(method, problem()) | {"price": 1.0, "bytes": 1.0}
        one["shifts"] |= {str(angle): one["shifts"]["45"] | {"log_likelihood": value} for angle in range(45, 181, 15)}
        return one

    rows = {"MAP": -3.0, "ours, Wasserstein": -1.0, "ours, random": -0.5}
    runs: list[dict[str, Any]] = [{"seed": 0, "methods": {label: outcome(value) for label, value in rows.items()}}]
    found = summarise(runs, "rotated_mnist")
    gains = {(one["against"], one["shift"]): one["gain"]["mean"] for one in found["orderings"]["ours, Wasserstein"]}
    assert gains["MAP", 45] == 2.0
    assert gains["ours, random", 180] == -0.5
    assert len(gains) == 2 * 10
    assert {one["won"] for one in found["orderings"]["ours, Wasserstein"]} == {0, 1}
    assert found["orderings"]["ours, Wasserstein, best held-out lambda"] == []
    assert found["rows"]["MAP"]["shifts"]["0"]["error"]["std"] is None


def test_the_papers_tables_are_whole() -> None:
    tables = image_tables()
    assert len(tables) == 8 * 4 * (13 + 6)
    assert tables["rotated_mnist", 45, "log_likelihood", "Ours"] == -1.09
    assert tables["corrupted_cifar10", 5, "log_likelihood", "Ensemble"] == -1.88
    assert ood_auroc()["MNIST", "FashionMNIST", "SWAG"] == 0.97
