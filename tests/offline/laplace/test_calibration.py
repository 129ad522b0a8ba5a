"""Held-out data decide: split, temperature, quantiles, each against a slow loop."""

import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from demur.offline import FitConfig, fit_bundle
from demur.offline.data.held_out import HeldOut, check_enough, collect_held_out
from demur.offline.data.likelihood import Classification, Regression
from demur.offline.jacobian.jacobian import SubnetworkJacobian
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.calibrated import held_out_metrics
from demur.offline.laplace.calibration import predict_held_out
from demur.offline.laplace.posterior import factor
from demur.offline.laplace.scoring import LEAST_MARGIN, MARGIN
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.progress import silent
from demur.service import Predictor
from demur.service.format.manifest import Task
from demur.service.maths.posterior_factor import CholeskyPosterior
from demur.service.maths.prediction_sets import PredictionSets
from tests import reference

CPU = torch.device("cpu")


def held_out(likelihood: Task, outputs: int, count: int = 9) -> HeldOut:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(count, 3, generator=generator)
    if likelihood == "classification":
        return HeldOut(inputs, torch.randint(0, outputs, (count,), generator=generator))
    return HeldOut(inputs, torch.randn(count, outputs, generator=generator))


def make(outputs: int) -> tuple[SubnetworkJacobian, Tensor]:
    """A Jacobian of 7 weights and a curvature for them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))
    layout = WeightLayout.of(model)
    indices = torch.arange(0, layout.total, 3)[:7]
    root = torch.randn(5, 7, dtype=torch.float64)
    return make_jacobian(private_copy(model, CPU), layout, indices, torch.randn(2, 3)), root.T @ root


# --------------------------------------------------------------------------- threshold


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize(("task", "scored"), [("regression", 50), ("classification", None)])
def test_all_held_out_examples_set_the_threshold_of_a_score_that_they_do_not_tune(
    task: Task, scored: int | None, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    x = torch.randn(150, 3)
    y = (x.sum(1) > 0).long() if task == "classification" else x.sum(1, keepdim=True)
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2 if task == "classification" else 1))
    config = FitConfig(likelihood=task, subnetwork_size=10, selection="random", device="cpu")
    fit_bundle(network, [(x[:100], y[:100])], tmp_path / "b", calibration_loader=[(x[100:], y[100:])], config=config)
    predictor = Predictor.load(tmp_path / "b")
    calibration, rule = predictor.manifest.calibration, predictor.decision.pooled
    assert (calibration.examples, calibration.scored, len(rule.scores)) == (25, scored, scored or 25)
    if scored:
        distances = predictor.predict(x[100:].numpy()).score
        np.testing.assert_allclose(
            rule.scores, np.sort(distances + np.maximum(MARGIN * distances, LEAST_MARGIN)), rtol=1e-4, atol=2e-6
        )
        assert predictor.decision.residuals is not None
        assert len(predictor.decision.residuals.residuals) == 25
    assert f"set by {scored or 25} examples comes out between" in (tmp_path / "b" / "README.md").read_text()


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("score", ["default", "predictive_entropy"])
def test_rows_that_repeat_are_no_more_unusual_than_their_held_out_copies(
    score: Literal["default", "predictive_entropy"], tmp_path: Path
) -> None:
    """Six different rows; scores and set scores are served with other last digits than the held-out ones have."""
    rng = np.random.default_rng(0)
    row = rng.choice(6, 6000, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    x, y = torch.eye(6)[row], torch.tensor((row + rng.integers(0, 2, 6000)) % 3)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[:1500]), y[:1500]).backward()
        optimizer.step()
    held_out, config = [(x[1500:2100], y[1500:2100])], FitConfig(score=score, device="cpu")
    fit_bundle(network, [(x[:1500], y[:1500])], tmp_path / "b", calibration_loader=held_out, config=config)
    predictor = Predictor.load(tmp_path / "b")
    found, sets = predictor.predict(x[2100:].numpy()), predictor.decision.sets
    for each in range(6):  # those copies are as unusual
        seen = float((row[1500:2100] == each).mean())
        assert found.p_value[row[2100:] == each].min() > seen - 3 * math.sqrt(seen / 300)
    assert found.probabilities is not None
    assert isinstance(sets, PredictionSets)
    assert sets.members(found.probabilities, 0.95)[np.arange(3900), y[2100:]].mean() > 0.94


@pytest.mark.usefixtures("short_fits")
def test_classes_that_can_hardly_be_told_are_rejected_as_rarely_as_any(tmp_path: Path) -> None:
    """All entropies are next to log 2, where the surprise is steep."""
    torch.manual_seed(1)
    x = torch.randn(6000, 8)
    y = torch.bernoulli(torch.sigmoid(0.3 * x.sum(1) / math.sqrt(8))).long()
    network = nn.Linear(8, 2)
    optimizer = torch.optim.Adam(network.parameters(), 0.05)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[:1500]), y[:1500]).backward()
        optimizer.step()
    held_out = [(x[1500:2100], y[1500:2100])]
    fit_bundle(network, [(x[:1500], y[:1500])], tmp_path / "b", calibration_loader=held_out)
    rejected = Predictor.load(tmp_path / "b").predict(x[2100:].numpy()).rejected.mean()
    assert 0.02 < rejected < 0.1  # as often as 300 held-out ones make it


# --------------------------------------------------------------------------- split


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 60), st.floats(0, 1), st.integers(0, 2**63 - 1))
def test_a_split_is_disjoint_and_whole(count: int, share: float, seed: int) -> None:
    data = HeldOut(torch.arange(count).reshape(count, 1), torch.arange(count))
    first, rest, _ = data.split(share, seed)
    assert len(first) == math.floor(share * count)
    assert sorted(first.targets.tolist() + rest.targets.tolist()) == list(range(count))
    for part in (first, rest):
        assert torch.equal(part.inputs[:, 0], part.targets)


def test_the_seed_decides_the_split() -> None:
    data = HeldOut(torch.arange(40).reshape(40, 1), torch.arange(40))
    parts = [data.split(0.5, seed)[0].targets.tolist() for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]
    assert parts[0] != list(range(20)), "not in the order given: the data may be sorted by class"


def test_chunks_are_paired_and_counted() -> None:
    data = HeldOut(torch.arange(7).reshape(7, 1), torch.arange(7))
    chunks = list(data.chunks(3, silent, ""))
    assert [y.tolist() for _, y in chunks] == [[0, 1, 2], [3, 4, 5], [6]]
    assert all(x[:, 0].tolist() == y.tolist() for x, y in chunks)


def test_held_out_data_are_collected_with_their_targets_checked() -> None:
    pairs = [(torch.zeros(2, 3), torch.tensor([0, 1])), (torch.ones(1, 3), torch.tensor([1]))]
    data = collect_held_out(iter(pairs), Classification(2))
    assert data.targets.tolist() == [0, 1, 1]
    assert data.inputs.shape == (3, 3)
    with pytest.raises(ValueError, match="from 0 to 1, expected 0 to 0"):
        collect_held_out(iter(pairs), Classification(1))


# --------------------------------------------------------------------------- enough examples


@pytest.mark.parametrize(("rate", "needed"), [(0.05, 19), (0.1, 9), (0.5, 1), (0.01, 99), (0.3, 3), (0.99, 1)])
def test_the_smallest_number_of_examples(rate: float, needed: int) -> None:
    """With n examples, the smallest p-value is 1 / (n + 1)."""
    check_enough(0, needed, rate, tuned=False)
    assert 1 / (needed + 1) <= rate
    with pytest.raises(ValueError, match=f"found {needed - 1} examples .* at least {needed} .*{needed} in all"):
        check_enough(0, needed - 1, rate, tuned=False)


def test_tuning_takes_as_many_again() -> None:
    with pytest.raises(ValueError, match=r"expected at least 19 .*38 in all, half of which tune"):
        check_enough(18, 18, 0.05, tuned=True)
    with pytest.raises(ValueError, match=r"found 1 examples to set the threshold and 0 to tune, .*2 in all, half"):
        check_enough(0, 1, 0.5, tuned=True)
    check_enough(1, 1, 0.5, tuned=True)


# --------------------------------------------------------------------------- predictions and their quality


def test_held_out_predictions_equal_a_slow_loop() -> None:
    (jacobian, ggn), data = make(3), held_out("classification", 3)
    scale_tril, _ = factor(ggn + torch.eye(7, dtype=torch.float64))
    mean, variance = predict_held_out(jacobian, CholeskyPosterior(scale_tril.numpy()), data, 2, silent)
    covariance = (scale_tril @ scale_tril.T).numpy()
    assert mean.dtype == variance.dtype == np.float64
    for n, x in enumerate(data.inputs):
        expected_mean, j = (part[0].double().numpy() for part in jacobian(x.unsqueeze(0)))
        np.testing.assert_allclose(mean[n], expected_mean, rtol=1e-5)
        np.testing.assert_allclose(variance[n], [row @ covariance @ row for row in j], rtol=1e-5)


def slow_calibration_error(logits: np.ndarray, targets: np.ndarray) -> float:
    """Over 15 bins of the confidence: the share of the examples, times what confidence and accuracy differ by."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, target in zip(logits, targets, strict=True):
        p = np.exp(row) / np.exp(row).sum()
        bins.setdefault(math.ceil(15 * p.max()), []).append((p.max(), p.argmax() == target))
    gaps = (abs(sum(c for c, _ in found) - sum(right for _, right in found)) for found in bins.values())
    return float(sum(gaps) / len(targets))


@pytest.mark.parametrize("sigma", [None, 0.3])
def test_held_out_metrics_equal_a_slow_loop(sigma: float | None) -> None:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(8, 3)), rng.uniform(0.1, 2, (8, 3))
    targets = rng.integers(0, 3, 8) if sigma is None else rng.normal(size=(8, 3))
    temperature = 1.7 if sigma is None else 1.0
    likelihood = Classification(3, temperature) if sigma is None else Regression(3, sigma)
    found = held_out_metrics(mean, variance, targets, likelihood, likelihood)
    each = [reference.log_likelihood(mean[n], variance[n], targets[n], sigma, temperature) for n in range(8)]
    plain = [reference.log_likelihood(mean[n], 0 * variance[n], targets[n], sigma, temperature) for n in range(8)]
    expected = {
        "calibration_log_likelihood": sum(each) / 8,
        "calibration_log_likelihood_map": sum(plain) / 8,
    }
    if sigma is None:
        scaled = mean / reference.probit_divisor(variance, temperature)
        likelihoods = [reference.log_likelihood(mean[n], 0 * variance[n], targets[n], None, 1.0) for n in range(8)]
        expected["calibration_log_likelihood_plain"] = sum(likelihoods) / 8
        for suffix, logits in (("", scaled), ("_map", mean / temperature), ("_plain", mean)):
            expected[f"calibration_error{suffix}"] = slow_calibration_error(logits, targets)
        expected["calibration_accuracy"] = sum(scaled[n].argmax() == targets[n] for n in range(8)) / 8
        expected["calibration_accuracy_map"] = sum(mean[n].argmax() == targets[n] for n in range(8)) / 8
    else:
        expected["calibration_rmse"] = math.sqrt(np.mean((mean - targets) ** 2))
        inside = np.abs(mean - targets) <= 1.959964 * np.sqrt(variance + sigma**2)
        expected["calibration_coverage_95"] = inside.mean()
    assert found == pytest.approx(expected)
    np.testing.assert_allclose(likelihood.log_likelihood(mean, variance, targets), each)


def test_the_labels_counted_are_those_served() -> None:
    """The leading logit is so uncertain that another class is served: it was right, the plain network wrong."""
    mean, variance = np.array([[3.0, 2.0, 0.0]]), np.array([[100.0, 0.0, 0.0]])
    found = held_out_metrics(mean, variance, np.array([1]), Classification(3), Classification(3))
    assert (found["calibration_accuracy"], found["calibration_accuracy_map"]) == (1.0, 0.0)


def test_the_plain_network_is_given_its_own_noise() -> None:
    mean, variance, targets = np.zeros((2, 1)), np.full((2, 1), 3.0), np.array([[2.0], [-2.0]])
    found = held_out_metrics(mean, variance, targets, Regression(1, 1.0), Regression(1, 2.0))
    assert found["calibration_log_likelihood"] == pytest.approx(found["calibration_log_likelihood_map"])
