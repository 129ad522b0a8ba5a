"""`python -m benchmarks trials` on made-up images: variances against the oracle, and what a choice must not do."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.core.artefacts import ArtefactCache
from benchmarks.core.settings import Settings
from benchmarks.experiments import kept
from benchmarks.experiments.frontier.data import Problem
from benchmarks.experiments.frontier.networks import DigitNetwork
from benchmarks.experiments.trials import hessian, run, second_mean, spectrum
from benchmarks.experiments.trials.link import best_temperature, divided, log_likelihood, within_budget
from benchmarks.experiments.trials.reading import Reading, groups
from offline.features.added_weights import LINK_FEATURES
from offline.runtime.progress import silent
from tests import reference
from tests.reference.added_weights import added_variance


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Ten blurred patterns with noise, 28 x 28."""
    generator = torch.Generator().manual_seed(0)
    patterns = F.interpolate(torch.randn(10, 1, 7, 7, generator=generator), size=28)
    classes = torch.arange(260) % 10
    x = patterns[classes] + torch.randn(260, 1, 28, 28, generator=generator)
    tests = {"usual": x[220:], "rotation-90": x[220:].rot90(1, (2, 3)), "light": x[220:] + 1}
    return Problem("mnist", (x[:160], classes[:160]), (x[160:220], classes[160:220]), tests, classes[220:], {})


@pytest.fixture(scope="module")
def model(problem: Problem) -> nn.Module:
    torch.manual_seed(0)
    network = DigitNetwork()
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(20):
        optimiser.zero_grad()
        F.cross_entropy(network(problem.train[0]), problem.train[1]).backward()
        optimiser.step()
    return network.eval()


@pytest.fixture(scope="module")
def reading(problem: Problem, model: nn.Module) -> Reading:
    return Reading.of(model, problem, 160, 20)


def test_images_are_read_once_with_what_the_network_says(reading: Reading, problem: Problem, model: nn.Module) -> None:
    assert {name: len(images.classes) for name, images in reading.tests.items()} == {
        "usual": 40,
        "rotation-90": 20,
        "light": 20,
    }
    assert {*reading.judging} == {"blur", "rotation-45", "rotation-90"}
    with torch.no_grad():
        expected = model(problem.tests["light"][:20])
    np.testing.assert_allclose(reading.tests["light"].logits, expected, rtol=1e-4, atol=1e-4)


def test_rotations_and_other_shifts_are_means_of_their_own() -> None:
    found = groups({"usual": 1.0, "rotation-15": 2.0, "rotation-30": 4.0, "light": 5.0})
    assert found == {"usual": 1.0, "turned": 3.0, "other shifts": 5.0}


def test_the_budget_pays_for_the_largest_scale_that_it_can() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, 200)
    logits, v = 2 * np.eye(3)[classes] + rng.normal(size=(200, 3)), rng.gamma(1.0, size=200)
    scales = np.logspace(-2, 2, 21)
    scale, temperature = within_budget(logits, classes, scales, lambda s: s * v, 0.01)
    _, plain = best_temperature(logits, np.zeros(200), classes)
    assert log_likelihood(divided(logits, scale * v, temperature), classes) >= plain - 0.01
    place = int(np.argmin(abs(scales - scale)))
    assert 0 < place < 20
    assert best_temperature(logits, scales[place + 1] * v, classes)[1] < plain - 0.01


def test_the_subnetworks_variance_is_that_of_the_oracle(reading: Reading) -> None:
    curvature = spectrum.subnetwork(reading, 0)
    train, images, size = reading.train, reading.tests["light"], len(curvature.values)
    live = np.flatnonzero(train.last.numpy().any(axis=0))
    chosen = np.random.default_rng(0).choice(10 * len(live), size, replace=False)
    outputs, inputs = chosen // len(live), live[chosen % len(live)]

    def jacobian(h: Any) -> Any:
        return np.where(outputs == np.arange(10)[:, np.newaxis], h.double().numpy()[:, np.newaxis, inputs], 0.0)

    precision = reference.posterior_precision(train.logits, jacobian(train.last), "classification", 3.0)
    expected = reference.variance(jacobian(images.last), precision).mean(axis=1)
    found = curvature.variance(curvature.squares(images), np.full(size, 1 / 3.0))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_the_tests_choose_is_no_worse_under_shift(reading: Reading) -> None:
    for name, found in spectrum.rows(reading, 0).items():
        shifted = {label: row["turned"] + row["other shifts"] for label, row in found.items()}
        assert shifted[spectrum.BEST] >= max(shifted[spectrum.ONE], shifted[spectrum.TWO])
        assert (spectrum.RHO in found) == (name == "added weights")
        assert all(math.isfinite(value) for row in found.values() for value in row.values())


def test_a_head_is_fitted_to_the_least_penalised_cross_entropy() -> None:
    generator = torch.Generator().manual_seed(0)
    x, classes = torch.randn(200, 4, generator=generator), torch.arange(200) % 3
    offset = torch.randn(200, 3, generator=generator)
    for penalty, (weight, bias) in zip(second_mean.PENALTIES, second_mean.logistic(x, classes, offset), strict=True):
        weight.requires_grad_()
        bias.requires_grad_()
        loss = F.cross_entropy(offset + x @ weight + bias, classes) + penalty * weight.square().sum()
        for gradient in torch.autograd.grad(loss, (weight, bias)):
            assert gradient.abs().max() < 1e-4


def test_each_curvature_gives_the_variance_of_the_oracle() -> None:
    """Of few features, all of whose eigenpairs are kept."""
    generator = torch.Generator().manual_seed(0)
    phi, asked = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (40, 5))
    logits = 2 * torch.randn(40, 3, generator=generator, dtype=torch.float64)
    p = torch.softmax(logits, 1)
    weights, rho = p * (1 - p), LINK_FEATURES.precision
    scaled = [phi * (w / weights.mean()).sqrt()[:, None] for w in (*weights.T, weights.mean(1))]
    every = [[added_variance(f, list(x.numpy()), rho, 6) for f in asked.numpy()] for x in (*scaled, phi)]
    found = hessian.variances(phi, logits)
    np.testing.assert_allclose(found[hessian.IDENTITY](asked), every[-1], rtol=1e-6)
    np.testing.assert_allclose(found[hessian.MEAN](asked), every[-2], rtol=1e-6)
    np.testing.assert_allclose(found[hessian.EACH](asked), np.mean(every[:3], axis=0), rtol=1e-6)


def test_the_trials_run_and_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: Problem) -> None:
    monkeypatch.setattr(kept, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(run, "load", lambda name, count: problem)
    settings = Settings(True, 1, tmp_path, ArtefactCache(tmp_path, 1), silent, tmp_path, ("mnist",))
    found = run.run(settings)
    assert found == run.run(settings)
    rows = found["summary"]["second mean"]["mnist"][""]
    assert list(rows) == [second_mean.PLAIN, second_mean.TEMPERED, *second_mean.HEADS, second_mean.SECOND]
    controls = [rows[name]["usual"]["mean"] for name in (second_mean.PLAIN, second_mean.TEMPERED)]
    for row in rows.values():
        assert row["usual"]["gain"] == pytest.approx(row["usual"]["mean"] - max(controls))
    assert list(found["summary"]["curvature"]["mnist"][""]) == [hessian.IDENTITY, hessian.MEAN, hessian.EACH]
