"""service/maths/predictive.py against slow and obvious loops, and what must hold whatever the numbers."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from demur.service.maths.predictive import (
    class_probabilities,
    entropy,
    entropy_parts,
    functional_variance,
    gaussian_interval,
    link_approx,
    predictive_std,
    softmax,
)
from tests import reference

Array = npt.NDArray[Any]
LARGEST = float(np.finfo(np.float32).max)
SHAPES = st.tuples(st.integers(1, 4), st.integers(2, 6))


def floats32(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=32)


@st.composite
def logits_and_variances(draw: st.DrawFn, largest: float = 2.0**100) -> tuple[Array, Array]:
    shape = draw(SHAPES)
    logits = draw(hnp.arrays(np.float32, shape, elements=floats32(-largest, largest)))
    variances = draw(hnp.arrays(np.float32, shape, elements=floats32(0, largest)))
    return logits, variances


def slow_softmax(logits: Array) -> list[float]:
    top = max(logits)
    exponentials = [math.exp(value - top) for value in logits]
    return [value / math.fsum(exponentials) for value in exponentials]


def slow_link(mean: Array, variance: Array, temperature: float) -> list[float]:
    scaled = [m / reference.probit_divisor(v, temperature) for m, v in zip(mean, variance, strict=True)]
    return slow_softmax(np.array(scaled))


def slow_entropy(probabilities: Array) -> float:
    return -math.fsum(p * math.log(p) for p in probabilities if p > 0)


def slow_variance(jacobian: Array, scale_tril: Array) -> Array:
    """sum_st J[b, k, s] Sigma[s, t] J[b, k, t], with Sigma[s, t] = sum_r L[s, r] L[t, r]."""
    batch, outputs, size = jacobian.shape
    sigma = [[sum(scale_tril[s, r] * scale_tril[t, r] for r in range(size)) for t in range(size)] for s in range(size)]
    variance = np.zeros((batch, outputs))
    for b in range(batch):
        for k in range(outputs):
            for s in range(size):
                for t in range(size):
                    variance[b, k] += jacobian[b, k, s] * sigma[s][t] * jacobian[b, k, t]
    return variance


@pytest.mark.parametrize(("batch", "outputs", "size"), [(1, 1, 1), (1, 3, 4), (5, 2, 3), (2, 4, 1)])
def test_functional_variance_is_the_diagonal_of_the_quadratic_form(batch: int, outputs: int, size: int) -> None:
    rng = np.random.default_rng(0)
    jacobian, scale_tril = rng.normal(size=(batch, outputs, size)), np.tril(rng.normal(size=(size, size)))
    expected = slow_variance(jacobian, scale_tril)
    np.testing.assert_allclose(functional_variance(jacobian, scale_tril), expected, rtol=1e-10, atol=1e-12)
    single = functional_variance(jacobian.astype(np.float32), scale_tril.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-5)


@given(logits_and_variances(), floats32(0.125, 8))
def test_probabilities_sum_to_one_and_match_the_loop(drawn: tuple[Array, Array], temperature: float) -> None:
    mean, variance = drawn
    probabilities = link_approx(mean, variance, temperature)
    assert probabilities.dtype == np.float64
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    for row, m, v in zip(probabilities, mean.astype(float), variance.astype(float), strict=True):
        np.testing.assert_allclose(row, slow_link(m, v, temperature), rtol=1e-9, atol=1e-12)


@given(logits_and_variances(), floats32(0.125, 8), floats32(0.125, 8))
def test_the_shared_link_divides_all_logits_by_one_number(
    drawn: tuple[Array, Array], temperature: float, map_temperature: float
) -> None:
    mean, variance = drawn
    probabilities = link_approx(mean, variance, temperature, "probit-shared")
    for row, m, v in zip(probabilities, mean.astype(float), variance.astype(float), strict=True):
        shared = np.full_like(v, math.fsum(v) / len(v))
        np.testing.assert_allclose(row, slow_link(m, shared, temperature), rtol=1e-9, atol=1e-12)
    average = variance.astype(np.float64).mean(axis=1, keepdims=True)
    by_average = link_approx(mean, average, temperature, "probit-shared")
    np.testing.assert_allclose(by_average, probabilities, rtol=1e-9, atol=1e-12)
    with_posterior, plain = class_probabilities(mean, variance, temperature, "probit-shared", map_temperature)
    np.testing.assert_array_equal(with_posterior, probabilities)
    np.testing.assert_array_equal(plain, softmax(mean.astype(np.float64) / map_temperature))


@given(logits_and_variances(largest=LARGEST), floats32(2.0**-19, 2.0**19))
@example((np.array([[0, LARGEST]], np.float32), np.array([[LARGEST, LARGEST]], np.float32)), 1.0)
def test_the_shared_link_keeps_the_networks_label(drawn: tuple[Array, Array], temperature: float) -> None:
    """Whatever the variances; logits that the division leaves too close for a float64 share the first place."""
    mean, variance = drawn
    probabilities = link_approx(mean, variance, temperature, "probit-shared")
    rows, label = np.arange(len(mean)), mean.argmax(axis=1)
    np.testing.assert_array_equal(probabilities[rows, label], probabilities.max(axis=1))
    divisor = reference.probit_divisor(variance.astype(np.float64).mean(axis=1), temperature)
    least, most = np.sort(mean.astype(np.float64) / divisor[:, np.newaxis], axis=1)[:, -2:].T
    clear = most - least > 1e-12 * np.maximum(1.0, np.abs(most))
    np.testing.assert_array_equal(probabilities.argmax(axis=1)[clear], label[clear])


@given(logits_and_variances(), floats32(0.125, 8))
def test_without_variance_the_link_is_the_softmax(drawn: tuple[Array, Array], temperature: float) -> None:
    mean, _ = drawn
    expected = softmax(mean.astype(np.float64) / temperature)
    np.testing.assert_allclose(link_approx(mean, np.zeros_like(mean), temperature), expected, rtol=1e-9, atol=1e-12)


@given(logits_and_variances(), floats32(0.125, 8))
def test_both_kinds_of_probabilities_at_once_are_the_same_numbers(
    drawn: tuple[Array, Array], temperature: float
) -> None:
    mean, variance = drawn
    with_posterior, plain = class_probabilities(mean, variance, temperature)
    np.testing.assert_array_equal(with_posterior, link_approx(mean, variance, temperature))
    np.testing.assert_array_equal(plain, softmax(mean.astype(np.float64) / temperature))


@given(logits_and_variances(largest=64), floats32(0, 64))
def test_equal_variances_keep_the_order_and_only_flatten(drawn: tuple[Array, Array], variance: float) -> None:
    mean, _ = drawn
    flat = link_approx(mean, np.full_like(mean, variance))
    sharp = softmax(mean)
    assert (flat.max(axis=1) <= sharp.max(axis=1) + 1e-12).all()
    top = mean.argmax(axis=1)
    assert (flat[np.arange(len(mean)), top] >= flat.max(axis=1) - 1e-12).all()


@given(logits_and_variances(largest=64))
def test_entropies_stay_within_their_bounds_and_add_up(drawn: tuple[Array, Array]) -> None:
    mean, variance = drawn
    both = probabilities, plain = class_probabilities(mean, variance, 1.0)
    total, aleatoric, epistemic = entropy_parts(both)
    ceiling = math.log(mean.shape[1])
    for part in (total, aleatoric, epistemic):
        assert part.shape == (len(mean),)
        assert (part >= 0).all()
        assert (part <= ceiling + 1e-9).all()
    np.testing.assert_allclose(aleatoric + epistemic, total, rtol=1e-12, atol=1e-15)
    for i in range(len(mean)):
        assert total[i] == pytest.approx(slow_entropy(probabilities[i]), abs=1e-9)
        assert aleatoric[i] == pytest.approx(min(slow_entropy(plain[i]), slow_entropy(probabilities[i])), abs=1e-9)


def test_entropy_in_nats() -> None:
    probabilities = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(entropy(probabilities), [0.5 * math.log(2) + 0.5 * math.log(4), 0.0])


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
def test_entropy_is_zero_for_certainty_and_largest_for_ignorance(classes: int) -> None:
    np.testing.assert_array_equal(entropy(np.eye(classes)), np.zeros(classes))
    assert entropy(np.full(classes, 1 / classes)) == pytest.approx(math.log(classes), rel=1e-12)


def test_softmax_of_huge_logits_neither_overflows_nor_warns() -> None:
    np.testing.assert_array_equal(softmax(np.array([[1e300, 0.0, -1e300]])), [[1, 0, 0]])
    np.testing.assert_allclose(softmax(np.array([[1e300, 1e300]])), [[0.5, 0.5]])


@given(
    hnp.arrays(np.float32, SHAPES, elements=floats32(0, 2.0**60)),
    floats32(2.0**-20, 2.0**30),
)
def test_predictive_std_adds_the_noise_once(variance: Array, sigma: float) -> None:
    expected = [[math.sqrt(v + sigma**2) for v in row] for row in variance.tolist()]
    np.testing.assert_allclose(predictive_std(variance, sigma), expected, rtol=1e-12)
    tripled = predictive_std(variance, sigma / 3, np.full_like(variance, 3))  # where it depends on the input
    np.testing.assert_allclose(tripled, expected, rtol=1e-6)


@given(floats32(-(2.0**20), 2.0**20), floats32(2.0**-10, 2.0**10), st.floats(0.01, 0.999))
def test_an_interval_is_central_and_holds_its_level(mean: float, std: float, level: float) -> None:
    low, high = (float(end[0]) for end in gaussian_interval(np.array([mean]), np.array([std]), level))
    assert high - mean == pytest.approx(mean - low, rel=1e-6, abs=1e-6)
    assert math.erf((high - low) / 2 / std / math.sqrt(2)) == pytest.approx(level, abs=1e-5)
