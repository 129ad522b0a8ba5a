"""The prior precision: the sweep against slow float64 loops, and each rule of choice on sweeps made by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import demur.offline.laplace.prior
from demur.offline.data.held_out import HeldOut
from demur.offline.data.likelihood import Classification, Likelihood, Regression, likelihood_of
from demur.offline.jacobian.jacobian import SubnetworkJacobian
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import accumulate_ggn
from demur.offline.laplace.posterior import PRIOR_GRID, Spectrum
from demur.offline.laplace.prior import (
    PriorSweep,
    choose_prior,
    grid_log_likelihood,
    no_wider_than_targets,
    prior_share,
    sweep_log_likelihood,
    sweep_prior,
)
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.progress import silent
from tests import reference
from tests.support.cases import CASES, Case

CPU = torch.device("cpu")
PRECISIONS = np.array([1e-3, 0.1, 1.0, 30.0])
SIGMA = 0.4
SOME = [case for case in CASES if case.name.startswith("mlp") or case.name == "cnn-classification-2"]


def fitted(case: Case) -> tuple[SubnetworkJacobian, Spectrum, HeldOut, Likelihood]:
    """Half of the weights (at most 40), curvature of 12 training examples, 9 held-out examples."""
    model = case.model()
    layout = WeightLayout.of(model)
    indices = torch.arange(0, layout.total, max(2, layout.total // 40))
    inputs, targets = case.data(9, seed=1)
    jacobian = make_jacobian(private_copy(model, CPU), layout, indices, inputs)
    likelihood = likelihood_of(case.likelihood, case.outputs, SIGMA)
    curvature = accumulate_ggn(jacobian, case.batches(12, 5), likelihood)
    ggn = curvature.ggn / likelihood.noise_variance
    return jacobian, Spectrum.of(ggn), HeldOut(inputs, targets), likelihood


# --------------------------------------------------------------------------- the sweep


def log_likelihood(
    case: Case, mean: np.ndarray, variance: np.ndarray, y: np.ndarray, sigma: float | None, temperature: float
) -> float:
    if case.likelihood == "multilabel":
        return reference.label_log_likelihood(mean, variance, y, temperature)
    return reference.log_likelihood(mean, variance, y, sigma, temperature)


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_the_sweep_equals_the_oracle(case: Case) -> None:
    """The oracle has no subnetwork: its Jacobian over all weights is cut down to the chosen ones."""
    jacobian, spectrum, data, likelihood = fitted(case)
    chosen = jacobian.indices.numpy()
    train_mean, train_jacobian = reference.full_jacobian(case.model(), case.data(12)[0])
    mean, full = reference.full_jacobian(case.model(), data.inputs)
    sigma, temperature = likelihood.sigma_noise, 1.3 if likelihood.sigma_noise is None else 1.0
    likelihood = likelihood_of(case.likelihood, case.outputs, SIGMA, temperature)
    found = sweep_prior(spectrum, torch.zeros(len(chosen)), 1.0, jacobian, data, likelihood, precisions=PRECISIONS)
    assert found.log_likelihood is not None
    for g, prior in enumerate(PRECISIONS):
        precision = reference.posterior_precision(
            train_mean, train_jacobian[:, :, chosen], case.likelihood, float(prior), sigma
        )
        variance = reference.variance(full[:, :, chosen], precision)
        each = [
            log_likelihood(case, m, v, y.numpy(), sigma, temperature)
            for m, v, y in zip(mean, variance, data.targets, strict=True)
        ]
        assert found.log_likelihood[g] == pytest.approx(sum(each) / 9, rel=2e-4, abs=2e-5)
    plain = [
        log_likelihood(case, m, 0 * m, y.numpy(), sigma, temperature) for m, y in zip(mean, data.targets, strict=True)
    ]
    assert found.plain_log_likelihood == pytest.approx(sum(plain) / 9, rel=1e-5)


@pytest.mark.parametrize("rows", [1, 4, 256])
@pytest.mark.parametrize(("case", "bytes_each"), [(CASES[1], 64), (CASES[3], 2**30)], ids=["rows", "one-by-one"])
def test_the_sweep_does_not_depend_on_the_chunks(
    case: Case, bytes_each: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jacobian, spectrum, data, likelihood = fitted(case)
    whole = sweep_log_likelihood(jacobian, spectrum, data, PRIOR_GRID, likelihood, silent)
    monkeypatch.setattr("demur.offline.laplace.calibration.MAX_ROWS", rows)
    monkeypatch.setattr(demur.offline.laplace.prior, "BYTES_A_VALUE", bytes_each)
    again = sweep_log_likelihood(jacobian, spectrum, data, PRIOR_GRID, likelihood, silent)
    np.testing.assert_allclose(again, whole, rtol=1e-5)


def test_no_variance_is_left_as_the_precision_grows() -> None:
    jacobian, spectrum, data, likelihood = fitted(CASES[1])
    scores = sweep_log_likelihood(jacobian, spectrum, data, np.array([1e12, np.inf]), likelihood, silent)
    assert scores[0] == pytest.approx(scores[1], rel=1e-8)


def test_the_share_scales_what_stands_in_the_posterior() -> None:
    jacobian, spectrum, data, likelihood = fitted(CASES[0])
    weights = torch.randn(jacobian.size, generator=torch.Generator().manual_seed(0))
    found = sweep_prior(spectrum, weights, 0.25, jacobian, data, likelihood, precisions=4 * PRECISIONS)
    plain = sweep_prior(spectrum, weights, 1.0, jacobian, data, likelihood, precisions=PRECISIONS)
    np.testing.assert_array_equal(found.precisions, 4 * PRECISIONS)
    np.testing.assert_allclose(found.used, PRECISIONS)
    assert found.log_likelihood is not None
    assert plain.log_likelihood is not None
    np.testing.assert_allclose(found.log_likelihood, plain.log_likelihood)
    np.testing.assert_allclose(found.log_evidence, plain.log_evidence)
    np.testing.assert_allclose(found.log_evidence, spectrum.log_evidence(weights, PRECISIONS))
    assert prior_share(5, 20) == 0.25


def test_without_held_out_data_only_the_evidence_is_known() -> None:
    jacobian, spectrum, data, likelihood = fitted(CASES[0])
    nothing = HeldOut(data.inputs[:0], data.targets[:0])
    for tuning in (None, nothing):
        sweep = sweep_prior(spectrum, torch.ones(jacobian.size), 1.0, jacobian, tuning, likelihood)
        assert sweep.log_likelihood is None
        assert sweep.plain_log_likelihood is None
        choice = choose_prior(sweep, "marglik")
        assert choice.cost is None
        assert choice.used == sweep.used[np.argmax(sweep.log_evidence)]
        with pytest.raises(ValueError, match="found no held-out data, expected at least one example"):
            choose_prior(sweep, "gridsearch")


def test_outputs_that_overflow_are_an_error() -> None:
    class Overflowing(SubnetworkJacobian):
        def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
            mean, j = super().__call__(x)
            return mean, j * math.inf

    jacobian, spectrum, data, likelihood = fitted(CASES[0])
    broken = Overflowing(jacobian.model, jacobian.layout, jacobian.indices, jacobian.plan)
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(ValueError, match=r"held-out log-likelihood is not finite.*overflow"),
    ):
        sweep_log_likelihood(broken, spectrum, data, PRECISIONS, likelihood, silent)


@pytest.mark.parametrize("sigma", [None, 0.3])
def test_every_variance_of_the_grid_is_used_with_its_example(sigma: float | None) -> None:
    rng = np.random.default_rng(0)
    mean, variances = rng.normal(size=(5, 3)), rng.uniform(0.1, 9, (5, 3, 4))
    targets = rng.integers(0, 3, 5) if sigma is None else rng.normal(size=(5, 3))
    found = grid_log_likelihood(
        mean, variances, targets, Classification(3, 1.7) if sigma is None else Regression(3, sigma)
    )
    expected = [
        [reference.log_likelihood(mean[n], variances[n, :, g], targets[n], sigma, 1.7) for n in range(5)]
        for g in range(4)
    ]
    np.testing.assert_allclose(found, expected)


# --------------------------------------------------------------------------- the choice


def sweep_of(scores: list[float], plain: float = -9.0, evidence: list[float] | None = None) -> PriorSweep:
    precisions = np.logspace(-1, len(scores) - 2, len(scores))
    return PriorSweep(precisions, precisions / 4, np.array(evidence or scores), np.array(scores), plain)


@pytest.mark.parametrize(
    ("scores", "plain", "budget", "place"),
    [
        ([-3, -1.0, -0.5, -0.6], -9, 0.0, 2),
        ([-3, -1.0, -0.5, -0.6], -9, 0.5, 1),
        ([-3, -1.0, -0.5, -0.6], -9, 2.5, 0),
        ([-3, -1.0, -0.5, -0.6], -0.25, 0.75, 1),  # the plain network is better, and counts
        ([-3, -1.0, -0.5, -0.6], -0.25, 0.26, 2),
        ([-0.4, -1.0, -0.5, -0.6], -9, 0.1, 0),  # not monotone: the smallest that keeps to the budget
        ([-3, -1.0, -0.5, -0.6], -0.1, 0.3, 2),  # none keeps to it: the one that costs least
    ],
)
def test_the_budget_takes_the_smallest_precision_that_keeps_to_it(
    scores: list[float], plain: float, budget: float, place: int
) -> None:
    sweep = sweep_of(scores, plain)
    choice = choose_prior(sweep, "budget", budget)
    assert choice.precision == sweep.precisions[place]
    assert choice.used == sweep.used[place]
    assert choice.budget == budget
    assert choice.cost == pytest.approx(max(*scores, plain) - scores[place])


@given(
    st.lists(st.floats(-50, 0), min_size=1, max_size=12),
    st.floats(-50, 0),
    st.floats(0, 5),
    st.floats(0, 5),
)
def test_a_larger_budget_never_leaves_less_uncertainty(
    scores: list[float], plain: float, budget: float, more: float
) -> None:
    sweep = sweep_of(scores, plain)
    small, large = (choose_prior(sweep, "budget", b) for b in (budget, budget + more))
    if small.cost is not None and small.cost <= budget:
        assert large.precision <= small.precision
    for choice in (small, large):
        kept = choice.cost is not None and choice.budget is not None and choice.cost <= choice.budget
        assert kept == any(max(*scores, plain) - score <= (choice.budget or 0) for score in scores)
        assert any("keeps to the uncertainty budget" in text for text in choice.warnings) == (not kept)


def test_grid_search_and_evidence_take_their_best() -> None:
    sweep = sweep_of([-3, -0.5, -0.5, -2, -4], evidence=[-1.0, -7, -8, 5, 2])
    grid, evidence = choose_prior(sweep, "gridsearch"), choose_prior(sweep, "marglik")
    assert grid.precision == 1.0, "a tie goes to the larger uncertainty"
    assert grid.cost == 0
    assert grid.budget is None
    assert evidence.precision == pytest.approx(100.0)
    assert evidence.cost == pytest.approx(1.5)
    assert grid.warnings == evidence.warnings == ()


def test_the_edge_of_the_range_is_told() -> None:
    low = choose_prior(sweep_of([-0.1, -1, -2]), "gridsearch")
    high = choose_prior(sweep_of([-2, -1, -0.1]), "gridsearch")
    assert (low.edge, high.edge) == ("smallest", "largest")
    assert low.warnings == ("the prior precision 0.1 is the smallest of the range searched by 'gridsearch'",)
    assert high.warnings == ("the prior precision 10 is the largest of the range searched by 'gridsearch'",)
    assert choose_prior(sweep_of([-2, -0.1, -1]), "gridsearch").edge is None


def spectrum_of(*values: float) -> Spectrum:
    return Spectrum(torch.tensor(values, dtype=torch.float64), torch.eye(len(values), dtype=torch.float64))


@pytest.mark.parametrize(
    ("largest", "share", "decades"),
    [(1e8, 1.0, 0), (1e6, 1.0, 0), (1e4, 1.0, 2), (1e4, 0.1, 1), (1e-3, 1.0, 8), (0.0, 1.0, 8)],
)
def test_the_search_begins_where_32_bit_numbers_still_resolve(largest: float, share: float, decades: int) -> None:
    found = spectrum_of(0.0, largest).search_range(share)
    assert len(found) == 101 + 10 * decades
    np.testing.assert_array_equal(found[10 * decades :], PRIOR_GRID)
    np.testing.assert_allclose(found[0], 10.0 ** (-4 - decades))
    np.testing.assert_allclose(np.diff(np.log10(found)), 0.1)


def searched(change_below: float) -> PriorSweep:
    """Over 1e-8 to 1e6: the log-likelihood falls by 0.001 a decade below 1, and not any more below `change_below`."""
    precisions = np.concatenate([PRIOR_GRID[0] * 10 ** (-np.arange(40, 0, -1) / 10), PRIOR_GRID])
    scores = -0.1 + 0.001 * np.log10(np.clip(precisions, change_below, 1.0))
    return PriorSweep(precisions, precisions, scores, scores, -0.1).as_far_as_it_matters()


@pytest.mark.parametrize(
    ("change_below", "end"), [(1e-2, 1e-4), (1e-5, 1e-6), (1e-20, 1e-8)], ids=["flat at once", "flat", "limit"]
)
def test_the_search_goes_on_until_nothing_changes(change_below: float, end: float) -> None:
    sweep = searched(change_below)
    assert float(np.log10(sweep.precisions[0])) == pytest.approx(math.log10(end), abs=0.11)
    assert len(sweep.used) == len(sweep.log_evidence) == len(sweep.precisions)
    choice = choose_prior(sweep, "budget", 0.05)
    assert choice.precision == sweep.precisions[0]
    assert choice.warnings == ()


def test_a_search_that_ends_inside_its_range_has_nothing_to_say() -> None:
    choice = choose_prior(searched(1e-20), "budget", 0.002)
    assert choice.edge is None
    assert choice.warnings == ()


def test_weights_of_a_regression_spread_outputs_no_wider_than_the_targets() -> None:
    rng = np.random.default_rng(0)
    jacobian, targets, noise = rng.normal(size=(30, 2, 5)), 3.0 * rng.normal(size=(40, 2)), 0.4
    precision = reference.posterior_precision(np.zeros((30, 2)), jacobian, "regression", 1.0, noise)
    spectrum = Spectrum.of(torch.as_tensor(precision - np.eye(5)))
    used = np.logspace(-3, 3, 61)
    sweep = PriorSweep(4 * used, used, -used, -used, -9.0)
    found = no_wider_than_targets(sweep, spectrum, 30, noise, targets)
    before_any_data = [np.trace(jacobian @ jacobian.transpose(0, 2, 1), axis1=1, axis2=2).mean() / one for one in used]
    kept = np.array(before_any_data) <= np.var(targets, axis=0).sum()
    assert 0 < kept.sum() < len(used)
    np.testing.assert_array_equal(found.used, used[kept])
    np.testing.assert_array_equal(found.precisions, 4 * used[kept])
    assert len(found.log_evidence) == kept.sum()
    choice = choose_prior(found, "budget", 5.0)
    assert choice.used == used[kept][0]
    np.testing.assert_array_equal(no_wider_than_targets(sweep, spectrum, 30, noise, 1e6 * targets).used, used)
    (last,) = no_wider_than_targets(sweep, spectrum, 30, noise, 1e-6 * targets).used
    assert last == used[-1]
    assert no_wider_than_targets(sweep, spectrum, 30, noise, np.ones((40, 2))) is sweep


def test_a_budget_that_cannot_be_kept_is_told() -> None:
    choice = choose_prior(sweep_of([-3, -2, -2.5], plain=-1.0), "budget", 0.05)
    (warning,) = choice.warnings
    assert "uncertainty budget of 0.05 nats: the one taken costs 1 on held-out data" in warning


def test_the_grid_has_ten_values_a_decade_from_1e_4_to_1e6() -> None:
    assert len(PRIOR_GRID) == 101
    np.testing.assert_allclose(PRIOR_GRID[::10], [1e-4, 1e-3, 1e-2, 0.1, 1, 10, 1e2, 1e3, 1e4, 1e5, 1e6])
