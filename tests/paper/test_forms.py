"""Forms of the predictive that the open questions compare, against sums written out one by one."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paper.questions import forms
from paper.questions.material import Material
from paper.questions.posterior import SubnetworkPosterior
from paper.questions.verdicts import verdicts
from probity.offline.data.held_out import HeldOut
from tests import reference

Array = npt.NDArray[np.float64]
K = 4


def made(examples: int, seed: int) -> tuple[Array, Array]:
    """Outputs and positive definite covariances."""
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(examples, K, K))
    return generator.normal(size=(examples, K)) * 3, root @ root.transpose(0, 2, 1)


def pairwise(mean: Array, covariance: Array, temperature: float) -> Array:
    values = []
    for k in range(K):
        total = 0.0
        for j in range(K):
            spread = covariance[k, k] + covariance[j, j] - 2 * covariance[k, j]
            total += math.exp(-(mean[k] - mean[j]) / math.sqrt(temperature**2 + math.pi / 8 * spread))
        values.append(1 / total)
    return np.array(values) / sum(values)


@pytest.mark.parametrize("temperature", [1.0, 0.4, 3.0])
def test_the_pairwise_form_is_its_definition(temperature: float) -> None:
    mean, covariance = made(7, seed=0)
    found = forms.pairwise(mean, covariance, temperature)
    np.testing.assert_allclose(
        found, [pairwise(m, c, temperature) for m, c in zip(mean, covariance, strict=True)], rtol=1e-12
    )


def centred(mean: Array, covariance: Array, temperature: float) -> Array:
    values = []
    for k in range(K):
        row = np.array([(1.0 if j == k else 0.0) - 1 / K for j in range(K)])
        spread = 2 * K / (K - 1) * row @ covariance @ row
        values.append(math.exp(row @ mean / math.sqrt(temperature**2 + math.pi / 8 * spread)))
    return np.array(values) / sum(values)


def against_leading(mean: Array, covariance: Array, temperature: float) -> Array:
    first, values = int(mean.argmax()), []
    for k in range(K):
        spread = covariance[k, k] + covariance[first, first] - 2 * covariance[k, first]
        values.append(math.exp((mean[k] - mean[first]) / math.sqrt(temperature**2 + math.pi / 8 * spread)))
    return np.array(values) / sum(values)


@pytest.mark.parametrize("temperature", [1.0, 0.4, 3.0])
@pytest.mark.parametrize(("form", "definition"), [(forms.centred, centred), (forms.against_leading, against_leading)])
def test_forms_of_differences_are_their_definitions(
    form: forms.Form, definition: forms.Form, temperature: float
) -> None:
    mean, covariance = made(7, seed=0)
    expected = [definition(m, c, temperature) for m, c in zip(mean, covariance, strict=True)]
    np.testing.assert_allclose(form(mean, covariance, temperature), expected, rtol=1e-12)


@pytest.mark.parametrize("form", [forms.centred, forms.against_leading])
def test_forms_of_differences_are_the_pairwise_one_for_two_classes(form: forms.Form) -> None:
    mean, covariance = made(7, seed=2)
    two = mean[:, :2], covariance[:, :2, :2]
    np.testing.assert_allclose(form(*two, 1.5), forms.pairwise(*two, 1.5), rtol=1e-10)


@given(st.integers(0, 1000), st.floats(0, 1e4))
def test_noise_that_all_outputs_share_changes_the_diagonal_form_only(seed: int, shared: float) -> None:
    mean, covariance = made(3, seed)
    for form in (forms.pairwise, forms.centred, forms.against_leading):
        np.testing.assert_allclose(form(mean, covariance + shared, 1.0), form(mean, covariance, 1.0), rtol=1e-6)
    if shared > 1:
        assert np.abs(forms.DIAGONAL(mean, covariance + shared, 1.0) - forms.DIAGONAL(mean, covariance, 1.0)).max() > 0


def test_extreme_outputs_stay_finite() -> None:
    mean, covariance = np.array([[1e5, -1e5, 0.0, 0.0]]), np.zeros((1, K, K))
    np.testing.assert_allclose(forms.pairwise(mean, covariance, 1.0), [[1.0, 0.0, 0.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize(
    ("form", "kind", "count"),
    [(forms.LEADING, "mean", 1), (forms.LEADING_THREE, "mean", 3), (forms.MARGIN, "margin", 2)],
)
def test_variances_of_some_outputs_are_those_of_the_oracle(form: forms.Form, kind: str, count: int) -> None:
    mean, covariance = made(5, seed=1)
    roots = np.linalg.cholesky(covariance).astype(np.float64)  # a Jacobian whose posterior precision is the identity
    filled = reference.filled_variance(mean, roots, np.eye(K), kind, count)
    np.testing.assert_allclose(form(mean, covariance, 1.0), reference.probit_probabilities(mean, filled), rtol=1e-6)


def test_covariances_are_those_of_the_oracle() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, K))
    inputs, targets = torch.randn(20, 3), torch.arange(20) % K
    material = Material(model, inputs, targets, HeldOut(inputs[:4], targets[:4]), 6, seed=0)
    indices, precisions = torch.tensor([0, 3, 16, 17, 30, 43]), np.array([0.5, 20.0, np.inf])
    mean, found = SubnetworkPosterior.of(material, indices, 10).covariances(inputs[:4], precisions)
    means, jacobian = reference.full_jacobian(model, inputs)
    j, share = jacobian[:, :, indices.numpy()], len(indices) / jacobian.shape[2]
    np.testing.assert_allclose(mean, means[:4], atol=1e-5)
    curvature = reference.posterior_precision(means[:10], j[:10], "classification", 0.0)
    for number, precision in enumerate(precisions[:2]):
        h = curvature + precision * share * np.eye(len(indices))
        np.testing.assert_allclose(found[number], j[:4] @ np.linalg.solve(h, j[:4].transpose(0, 2, 1)), rtol=1e-4)
    assert not found[2].any()


def outcome(seed: int, shifted: float, usual: float) -> dict[str, Any]:
    found = {"log_likelihood": {"0": -0.1}, "shifted": -2.0, "auroc": {"other": 0.9}}
    other = {"log_likelihood": {"0": usual}, "shifted": shifted, "auroc": {"other": 0.9}}
    return {"network": "n", "weights": "w", "seed": seed, "variants": {"product": found, "other": other}}


def test_a_gain_beyond_the_noise_is_one_that_every_seed_has() -> None:
    runs = [outcome(0, -1.50, -0.3), outcome(1, -1.52, 0.2), outcome(2, -1.49, -0.1)]
    own, other = verdicts(runs, "product")
    assert own["shifted"]["gain"] == 0
    assert other["shifted"]["verdict"] == "better"
    assert other["usual"]["verdict"] == "within the noise"
    assert other["auroc"]["verdict"] == "within the noise"
    assert verdicts(runs[:1], "product")[1]["shifted"]["half_width"] is None
