"""`python -m paper uci` on made-up data: posteriors against the oracle, and paired tests."""

from typing import Any

import numpy as np
import pytest
import torch

from paper.regression_networks import GaussianModel, Patience, Shape, train_network
from paper.tables import claim as uci_claim
from paper.tables import network as uci_network
from paper.tables import posterior as uci_posterior
from paper.tables import summary as uci_summary
from paper.tables.data import Split, split
from paper.tables.leverage import sampled_leverage
from paper.tables.posterior import Judged, Rows, WholeMatrix, climb, whole_grid
from tests import reference


@pytest.fixture(scope="module")
def made_up() -> Split:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    y = 7 + 3 * np.sin(x[:, :1]) + rng.normal(size=(100, 1))
    return split("made up", x, y, np.arange(80), np.arange(80, 100), 0)


@pytest.fixture
def posterior_data() -> tuple[torch.Tensor, torch.Tensor, float]:
    """J of 12 training examples, of 5 others, 20 weights; sigma."""
    generator = torch.Generator().manual_seed(0)
    training, others = (torch.randn(n, 20, generator=generator, dtype=torch.float64) for n in (12, 5))
    return training, others, 0.4


@pytest.mark.parametrize("size", [3, 12, 20])
def test_dual_and_primal_agree_with_the_oracle(
    posterior_data: tuple[torch.Tensor, torch.Tensor, float], size: int
) -> None:
    training, others, sigma = posterior_data
    indices, used = torch.arange(size), 0.3 * size / 20
    rows = training / sigma
    precision = reference.posterior_precision(
        np.zeros((12, 1)), training[:, None, :size].numpy(), "regression", used, sigma
    )
    wanted = reference.variance(others[:, None, :size].numpy(), precision)[:, 0]
    for curvature in (Rows(rows), WholeMatrix(rows.T @ rows)):
        found = curvature.over(indices).variances(others[:, :size], used)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-8)
        np.testing.assert_allclose(curvature.diagonal.numpy(), (rows**2).sum(0).numpy(), rtol=1e-12)
    by_kernel = uci_posterior.Dual(rows[:, :size], rows[:, :size] @ rows[:, :size].T)
    np.testing.assert_allclose(by_kernel.variances(others[:, :size], used).numpy(), wanted, rtol=1e-8)


def test_log_likelihood_is_the_oracles(posterior_data: tuple[torch.Tensor, torch.Tensor, float]) -> None:
    _, others, sigma = posterior_data
    mean, targets, variances = np.ones((5, 1)), np.linspace(0, 2, 5)[:, None], np.linspace(0, 1, 5)
    judged = Judged(mean, others, targets, sigma)
    each = [reference.log_likelihood(mean[n], variances[n : n + 1], targets[n], sigma) for n in range(len(mean))]
    assert judged.log_likelihood(variances) == pytest.approx(np.mean(each))


def test_lambda_is_chosen_on_validation_data_and_scaled(
    posterior_data: tuple[torch.Tensor, torch.Tensor, float],
) -> None:
    training, others, sigma = posterior_data
    curvature, indices = Rows(training / sigma), torch.tensor([1, 4, 6, 19])
    targets = np.linspace(-2, 2, 5)[:, None]
    judged = Judged(np.zeros((5, 1)), others, targets, sigma)
    found = uci_posterior.fit(curvature, indices, 20, judged, judged, whole_grid, 1.0)
    scores = {
        precision: judged.under(curvature.over(indices), indices, precision * 4 / 20)
        for precision in uci_posterior.PRIOR_GRID
    }
    assert found.prior_precision == max(scores, key=lambda precision: scores[precision])
    assert found.validation == found.test == scores[found.prior_precision]


@pytest.mark.parametrize("peak", uci_posterior.PRIOR_GRID)
def test_climbing_finds_a_single_peak_from_anywhere(peak: float) -> None:
    for start in uci_posterior.PRIOR_GRID:
        assert climb(lambda precision: -abs(np.log(precision / peak)), start) == peak
    assert whole_grid(lambda precision: -abs(np.log(precision / peak)), 1.0) == peak


def test_split_is_standardised_by_the_rows_that_train(made_up: Split) -> None:
    assert (len(made_up.train.x), len(made_up.validation.x), len(made_up.test.x)) == (68, 12, 20)
    np.testing.assert_allclose(made_up.train.x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(made_up.train.y.std(), 1)
    assert made_up.scale == pytest.approx(np.sqrt(1 + 9 * np.var(np.sin(made_up.train.x[:, 0]))), rel=0.4)


def test_training_stops_early_and_keeps_the_best_validation_weights(made_up: Split) -> None:
    losses: list[float] = []

    class Watched(GaussianModel):
        def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            value = super().loss(x, y)
            if not torch.is_grad_enabled():
                losses.append(float(value))
            return value

    model = Watched(Shape(4, 1).network(2, 0))
    inputs, targets = made_up.validation.tensors()
    foreign = inputs, targets + 10  # less likely with every step, as the noise shrinks
    train_network(model, made_up.train.tensors(), foreign, Patience(300, 20), 0)
    best = int(np.argmin(losses))
    assert len(losses) == best + 20 + 1 < 300
    with torch.no_grad():
        assert float(GaussianModel.loss(model, *foreign)) == losses[best] < losses[-1]


@pytest.mark.parametrize("examples", [12, 40])
def test_leverage_of_all_examples_is_the_oracles(examples: int) -> None:
    """With fewer examples than weights, and with more; the first weight is dead."""
    jacobian = torch.randn(examples, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    jacobian[:, 0] = 0.0
    training, sigma = jacobian[:, None].numpy(), 0.4
    precision = reference.posterior_precision(np.zeros((examples, 1)), training, "regression", 2.0, sigma)
    found = sampled_leverage(jacobian, 1 / sigma**2, 2.0)
    np.testing.assert_allclose(found.numpy(), reference.leverage(training, precision), rtol=1e-9, atol=1e-12)
    assert found[0] == 0.0


def test_sampled_leverage_comes_close_to_the_exact_one() -> None:
    """Share of the exact leverage that the weights chosen from a sample have."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(-1, 1, 50, dtype=torch.float64)
    jacobian = scales * torch.randn(400, 50, generator=generator, dtype=torch.float64)
    exact = sampled_leverage(jacobian, 1.0, 1.0)
    best = exact.topk(10).values.sum()
    shares = [
        float(exact[sampled_leverage(jacobian[:count], 400 / count, 1.0).topk(10).indices].sum() / best)
        for count in (20, 200, 400)
    ]
    assert 0.5 < shares[0] < shares[1] < shares[2] == 1.0


def test_one_network_has_every_row_in_original_units(made_up: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    def untrained(name: str, model: torch.nn.Module, train: Any) -> torch.nn.Module:
        return model

    monkeypatch.setattr(uci_network, "trained_once", untrained)
    monkeypatch.setattr(uci_network, "SHAPES", (Shape(3, 1), Shape(5, 1), Shape(6, 2)))
    monkeypatch.setattr(uci_network, "LEVERAGE_EXAMPLES", 30)
    limits = uci_network.Limits(Patience(1, 1), None, 10)
    found = uci_network.one_network(made_up, Shape(6, 2), 0, limits, whole_grid)
    assert found["weights"] == 3 * 6 + 36
    sizes = {(row["method"], row["S"]) for row in found["rows"]}
    assert sizes == {(method, size) for method in uci_claim.METHODS for size in (9, 15)} | {("full", 54)}
    network = Shape(6, 2).network(2, 0).double()
    with torch.no_grad():
        mean = network(torch.as_tensor(made_up.test.x[:10])).numpy()
    each = [
        reference.log_likelihood(f * made_up.scale, np.zeros(1), y * made_up.scale, made_up.scale)
        for f, y in zip(mean, made_up.test.y[:10], strict=True)
    ]
    assert found["map"] == pytest.approx(np.mean(each), rel=1e-6)


def test_paired_tests_of_made_up_numbers() -> None:
    found = uci_claim.paired([1.0, 2.0, 3.0, 4.0, 5.0, -0.5])
    assert found["units"] == 6
    assert found["positive"] == 5
    assert found["mean_difference"] == pytest.approx(14.5 / 6)
    assert found["p_wilcoxon"] == pytest.approx(2 * 2 / 2**6)  # rank sums 0 and 1 are as extreme: 2 of 64 signs a side
    assert uci_claim.verdict(found) == "undecided"
    assert uci_claim.verdict(uci_claim.paired([0.5 + 0.1 * n for n in range(8)])) == "holds"
    assert uci_claim.verdict(uci_claim.paired([-0.5 - 0.1 * n for n in range(8)])) == "contradicted"
    for few in ([1.0], [0.0, 0.0]):
        assert uci_claim.paired(few)["p_wilcoxon"] is None
        assert uci_claim.verdict(uci_claim.paired(few)) == "undecided"


def test_claim_compares_networks_of_one_split_at_the_same_size() -> None:
    def run(split_number: int, network: str, weights: int, full: float, small: float | None) -> dict[str, Any]:
        rows: list[dict[str, Any]] = [{"method": "full", "S": weights, "test": full, "prior_precision": 1.0}]
        if small is not None:
            rows += [{"method": m, "S": 10, "test": small, "prior_precision": 1.0} for m in uci_claim.METHODS]
        return {
            "problem": "wine-gap", "split": split_number, "network": network, "weights": weights, "map": full - 1,
            "rows": rows,
        }  # fmt: skip

    runs = [run(0, "s", 10, -2.0, None), run(0, "l", 30, -1.0, -1.5), run(1, "s", 10, -3.0, None)]
    runs.append(run(1, "l", 30, -1.0, -1.0))
    other_table = [{**run, "problem": "wine-standard"} for run in (runs[0], runs[1])]
    over_tables = uci_claim.claim([*runs, *other_table])["wasserstein"]["pooled_over_tables"]
    assert (over_tables["units"], over_tables["mean_difference"]) == (2, pytest.approx((1.25 + 0.5) / 2))
    found = uci_claim.claim(runs)["wasserstein"]
    assert found["pooled"]["units"] == 2
    assert found["pooled"]["mean_difference"] == pytest.approx((0.5 + 2.0) / 2)
    summary = uci_summary.summarise(runs)["wine-gap"]["l"]
    assert [(entry["S"], entry["mean"]) for entry in summary["wasserstein"]] == [(0, -2.0), (10, -1.25), (30, -1.0)]
    assert summary["wasserstein"][1]["stderr"] == pytest.approx(0.25)
