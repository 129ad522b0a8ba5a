"""H_S, variances and probabilities against the explicit float64 computation, to 1e-5 relative."""

import numpy as np
import pytest
import torch

from demur.offline.data.likelihood import likelihood_of
from demur.offline.jacobian.jacobian import SubnetworkJacobian
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import accumulate_ggn
from demur.offline.laplace.posterior import factor, posterior_precision
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service.maths.predictive import functional_variance, link_approx
from tests import reference
from tests.support.cases import CASES, Case

SEEDS = (0, 1, 2)
TRAIN, TEST = 24, 6
SIGMA, PRIOR = 0.7, 3.0
SIZES = ("one", "few", "half", "all")


def chosen_indices(total: int, size: str, seed: int) -> torch.Tensor:
    count = {"one": 1, "few": max(2, total // 20), "half": total // 2, "all": total}[size]
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(total, generator=generator)[:count].sort().values


def make(case: Case, size: str, seed: int) -> tuple[SubnetworkJacobian, torch.Tensor]:
    model = case.model(seed)
    layout = WeightLayout.of(model)
    indices = chosen_indices(layout.total, size, seed)
    network = private_copy(model.train(), torch.device("cpu"))
    return make_jacobian(network, layout, indices, case.data(2, seed)[0]), indices


def close(found: object, expected: np.ndarray, rtol: float = 1e-5) -> None:
    """Relative to each entry, or to the largest one for entries far below it."""
    floor = rtol * 1e-2 * float(np.abs(expected).max())
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=rtol, atol=floor)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_precision_variance_and_probabilities(case: Case, size: str, seed: int) -> None:
    jacobian, indices = make(case, size, seed)
    sigma = SIGMA if case.likelihood == "regression" else None
    curvature = accumulate_ggn(jacobian, case.batches(TRAIN, 7, seed), likelihood_of(case.likelihood, case.outputs))
    ggn = curvature.ggn if sigma is None else curvature.ggn / sigma**2
    precision = posterior_precision(ggn, PRIOR)

    train_mean, train_jacobian = reference.full_jacobian(case.model(seed), case.data(TRAIN, seed)[0])
    expected = reference.posterior_precision(
        train_mean, train_jacobian[:, :, indices.numpy()], case.likelihood, PRIOR, sigma
    )
    close(precision, expected)

    test_inputs = case.data(TEST, seed + 100)[0]
    mean, found_jacobian = jacobian(test_inputs)
    true_mean, true_jacobian = reference.full_jacobian(case.model(seed), test_inputs)
    scale_tril, jitter = factor(precision)
    found = functional_variance(found_jacobian.double().numpy(), scale_tril.numpy())
    true_variance = reference.variance(true_jacobian[:, :, indices.numpy()], expected)
    assert jitter == 0
    close(found, true_variance)
    if case.likelihood == "classification":
        probabilities = link_approx(mean.numpy(), found)
        close(probabilities, reference.probit_probabilities(true_mean, true_variance))
    if case.likelihood == "multilabel":
        probabilities = link_approx(mean.numpy(), found, link="probit-sigmoid")
        close(probabilities, reference.label_probabilities(true_mean, true_variance))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_weights_give_the_full_laplace_posterior(case: Case) -> None:
    """S = D: the subnetwork's variance is that of the full network's posterior."""
    jacobian, indices = make(case, "all", 0)
    assert indices.tolist() == list(range(jacobian.layout.total))
    curvature = accumulate_ggn(jacobian, case.batches(TRAIN, 5), likelihood_of(case.likelihood, case.outputs))
    scale_tril, _ = factor(posterior_precision(curvature.ggn, PRIOR))
    inputs = case.data(TEST, 7)[0]
    found = functional_variance(jacobian(inputs)[1].double().numpy(), scale_tril.numpy())
    train_mean, train_jacobian = reference.full_jacobian(case.model(), case.data(TRAIN)[0])
    full = reference.posterior_precision(train_mean, train_jacobian, case.likelihood, PRIOR, 1.0)
    close(found, reference.variance(reference.full_jacobian(case.model(), inputs)[1], full))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_variance_grows_with_the_subnetwork_at_fixed_prior_precision(case: Case) -> None:
    """Conditioning on fewer fixed weights can only add uncertainty: nested subnetworks, entry by entry."""
    model = case.model()
    layout = WeightLayout.of(model)
    order = torch.randperm(layout.total, generator=torch.Generator().manual_seed(3))
    inputs = case.data(TEST, 7)[0]
    previous = np.zeros((TEST, case.outputs))
    for count in (1, layout.total // 10, layout.total // 3, layout.total):
        indices = order[:count].sort().values
        jacobian = make_jacobian(private_copy(model, torch.device("cpu")), layout, indices, inputs)
        curvature = accumulate_ggn(jacobian, case.batches(TRAIN, 8), likelihood_of(case.likelihood, case.outputs))
        scale_tril, _ = factor(posterior_precision(curvature.ggn, PRIOR))
        current = functional_variance(jacobian(inputs)[1].double().numpy(), scale_tril.numpy())
        assert (current >= previous * (1 - 1e-5) - 1e-9).all()
        previous = current


def test_cases_cover_what_they_should() -> None:
    assert {(case.likelihood, case.outputs) for case in CASES} == {
        ("classification", 2),
        ("classification", 10),
        ("multilabel", 3),
        ("regression", 1),
        ("regression", 2),
        ("regression", 10),
    }
