"""The two likelihoods: targets refused or converted, the output Hessian's root, log-likelihoods against loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from demur.offline.data.likelihood import (
    Classification,
    Likelihood,
    Regression,
    class_log_likelihood,
    gaussian_log_likelihood,
)
from tests import reference

INF, NAN = math.inf, math.nan

BAD_CLASSES = {
    "float": (torch.tensor([0.0, 1.0, 1.0]), 3, "found dtype torch.float32, expected integer"),
    "shares": (torch.tensor([0.0, 0.3, 1.0]), 2, "found dtype torch.float32, expected integer"),
    "NaN": (torch.tensor([0.0, NAN, 1.0]), 2, "found dtype torch.float32, expected integer"),
    "complex": (torch.tensor([0j, 1j, 1j]), 2, "found dtype torch.complex64"),
    "bool": (torch.tensor([True, False, True]), 3, "found dtype torch.bool"),
    "column": (torch.tensor([[0], [1], [1]]), 3, r"found shape \(3, 1\), expected \(3,\)"),
    "rows": (torch.ones(3, 2), 2, r"found shape \(3, 2\), expected \(3,\)"),
    "one-hot": (torch.eye(3, dtype=torch.int64), 3, r"found shape \(3, 3\), expected \(3,\)"),
    "too few": (torch.tensor([0, 1]), 2, r"found shape \(2,\), expected \(3,\)"),
    "too many": (torch.tensor([0, 1, 0, 1]), 2, r"found shape \(4,\), expected \(3,\)"),
    "scalar": (torch.tensor(1), 2, r"found shape \(\)"),
    "negative": (torch.tensor([-1, 0, 1]), 2, "from -1 to 1, expected 0 to 1"),
    "too large": (torch.tensor([0, 1, 2]), 2, "from 0 to 2, expected 0 to 1"),
}
BAD_VALUES = {
    "flat, two outputs": (torch.zeros(3), 2, r"found shape \(3,\), expected \(3, 2\)"),
    "flat, too few": (torch.zeros(2), 1, r"found shape \(2, 1\), expected \(3, 1\)"),
    "too narrow": (torch.zeros(3, 1), 2, r"found shape \(3, 1\), expected \(3, 2\)"),
    "too wide": (torch.zeros(3, 3), 2, r"found shape \(3, 3\)"),
    "three axes": (torch.zeros(3, 1, 1), 1, r"found shape \(3, 1, 1\)"),
    "NaN": (torch.tensor([0.0, NAN, 1.0]), 1, "found NaN or infinity"),
    "infinity": (torch.tensor([0.0, -INF, 1.0]), 1, "found NaN or infinity"),
    "too large for float32": (torch.tensor([0.0, 1e300, 1.0], dtype=torch.float64), 1, "found NaN or infinity"),
    "complex": (torch.tensor([0j, 1j, 1j]), 1, "complex"),
}


@pytest.mark.parametrize(("targets", "outputs", "message"), BAD_CLASSES.values(), ids=BAD_CLASSES)
def test_bad_classes_are_refused(targets: torch.Tensor, outputs: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Classification(outputs).check_targets(targets, 3)


@pytest.mark.parametrize(("targets", "outputs", "message"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_values_are_refused(targets: torch.Tensor, outputs: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Regression(outputs).check_targets(targets, 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64])
def test_classes_of_any_integer_type_become_int64(dtype: torch.dtype) -> None:
    checked = Classification(3).check_targets(torch.tensor([0, 2, 1], dtype=dtype), 3)
    assert checked.dtype == torch.int64
    assert checked.tolist() == [0, 2, 1]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_two_classes_as_the_binary_cross_entropy_takes_them(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    checked = Classification(2).check_targets(torch.tensor([0, 1, 1], dtype=dtype).reshape(shape), 3)
    assert checked.dtype == torch.int64
    assert checked.tolist() == [0, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64])
def test_values_become_float32(dtype: torch.dtype) -> None:
    checked = Regression(2).check_targets(torch.tensor([[0, 2], [1, -3]], dtype=dtype), 2)
    assert checked.dtype == torch.float32
    assert checked.tolist() == [[0, 2], [1, -3]]


def test_flat_values_become_a_column_for_one_output() -> None:
    assert Regression(1).check_targets(torch.tensor([1.0, 2.0]), 2).tolist() == [[1], [2]]


# --------------------------------------------------------------------------- output Hessian


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = [math.exp(value - max(logits)) for value in logits]
    return np.array([value / sum(exponentials) for value in exponentials])


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 4), st.integers(2, 6), st.integers(1, 5), st.sampled_from([0.0, 1.0, 40.0]), st.integers(0, 99))
def test_root_squared_is_the_softmax_hessian(batch: int, outputs: int, size: int, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    jacobian = torch.randn(batch, outputs, size, generator=generator, dtype=torch.float64)
    mean = scale * torch.randn(batch, outputs, generator=generator, dtype=torch.float64)
    root = Classification(outputs).sqrt_hessian_product(jacobian, mean).numpy()
    assert root.shape == (batch, outputs, size)
    for n in range(batch):
        p, j = softmax(mean[n].numpy()), jacobian[n].numpy()
        expected = j.T @ (np.diag(p) - np.outer(p, p)) @ j
        np.testing.assert_allclose(root[n].T @ root[n], expected, rtol=1e-9, atol=1e-14)


@settings(derandomize=True, deadline=None)
@given(st.floats(-1e4, 1e4), st.integers(0, 99))
def test_the_hessian_ignores_a_shift_of_the_logits(shift: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    jacobian = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    mean = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    plain, shifted = (Classification(3).sqrt_hessian_product(jacobian, m) for m in (mean, mean + shift))
    torch.testing.assert_close(plain, shifted, rtol=1e-8, atol=1e-10)


def test_the_hessian_is_the_second_derivative_of_the_negative_log_likelihood() -> None:
    logits = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda f: -torch.log_softmax(f, 0)[1], logits)
    root = Classification(3).sqrt_hessian_product(torch.eye(3, dtype=torch.float64).unsqueeze(0), logits.unsqueeze(0))
    torch.testing.assert_close(root[0].T @ root[0], hessian)


def test_extreme_logits_stay_finite() -> None:
    mean = torch.tensor([[1000.0, -1000.0, 0.0]])
    root = Classification(3).sqrt_hessian_product(torch.ones(1, 3, 2), mean)
    assert torch.isfinite(root).all()


def test_regression_has_no_factor() -> None:
    jacobian = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Regression(3).sqrt_hessian_product(jacobian, torch.zeros(2, 3)), jacobian)


# --------------------------------------------------------------------------- log-likelihoods


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 99))
def test_gaussian_log_likelihood_is_a_sum_over_outputs(examples: int, outputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean, targets = rng.normal(size=(2, examples, outputs))
    std = rng.uniform(0.1, 3, (examples, outputs))
    found = gaussian_log_likelihood(mean, std, targets)
    for n in range(examples):
        densities = [
            math.exp(-((targets[n, k] - mean[n, k]) ** 2) / (2 * std[n, k] ** 2))
            / math.sqrt(2 * math.pi * std[n, k] ** 2)
            for k in range(outputs)
        ]
        assert found[n] == pytest.approx(sum(math.log(d) for d in densities), rel=1e-9, abs=1e-9)


def test_class_log_likelihood_picks_the_target() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25]])
    found = class_log_likelihood(p, np.array([2, 0]))
    np.testing.assert_allclose(found, [math.log(0.1), math.log(0.25)])


def test_a_probability_of_zero_stays_finite() -> None:
    (value,) = class_log_likelihood(np.array([[1.0, 0.0]]), np.array([1]))
    assert value == pytest.approx(math.log(np.finfo(np.float64).tiny))


@pytest.mark.parametrize("likelihood", [Classification(3), Regression(1)])
def test_the_training_loss_has_the_gradient_of_the_mean_negative_log_likelihood(likelihood: Likelihood) -> None:
    output = torch.randn(4, likelihood.outputs, generator=torch.Generator().manual_seed(1))
    output.requires_grad_()
    if isinstance(likelihood, Classification):
        targets = torch.tensor([0, 2, 1, 1])
        expected = (torch.softmax(output, 1) - torch.eye(3)[targets]) / 4
    else:
        targets = torch.tensor([[1.0], [0.0], [-1.0], [3.0]])
        expected = (output - targets) / 4
    (found,) = torch.autograd.grad(likelihood.training_loss(output, targets), output)
    torch.testing.assert_close(found, expected.detach())


@pytest.mark.parametrize("likelihood", [Classification(3), Regression(3)])
def test_the_root_and_its_transpose_belong_together(likelihood: Likelihood) -> None:
    """z^T (C^T J) = (C z)^T J for any z and J."""
    generator = torch.Generator().manual_seed(0)
    mean, z, jacobian = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 3), (4, 3), (4, 3, 5))
    )
    left = torch.einsum("bk,bks->bs", z, likelihood.sqrt_hessian_product(jacobian, mean))
    right = torch.einsum("bk,bks->bs", likelihood.sqrt_hessian_transpose_product(z, mean), jacobian)
    torch.testing.assert_close(left, right)


@given(logits=st.lists(st.integers(-20, 20), min_size=4, max_size=9, unique=True), rows=st.integers(2, 3))
def test_the_leading_root_leaves_out_what_the_oracle_says(logits: list[int], rows: int) -> None:
    """Lambda less c^T c is the covariance within the classes that are taken together: never negative."""
    likelihood = Classification(len(logits), most_rows=rows)
    root = likelihood.leading_root(torch.tensor([logits], dtype=torch.float64))[0].numpy()
    assert root.shape == (rows, len(logits))
    exact = reference.output_hessian(np.array(logits), "classification", None)
    p = reference.softmax(np.array(logits))
    left_out = exact - root.T @ root
    np.testing.assert_allclose(left_out, reference.curvature_left_out(np.array(logits), rows), atol=1e-12)
    assert np.linalg.eigvalsh(left_out).min() >= -1e-12
    assert np.trace(left_out) <= np.sort(p)[: len(p) - rows + 1].sum() + 1e-12
