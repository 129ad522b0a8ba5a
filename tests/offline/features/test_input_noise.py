"""Noise that depends on the input: against the definition, and what must hold for all residuals."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from demur.offline.features.coordinates import converted
from demur.offline.features.input_noise import LEAST_EXAMPLES, MOST_OUTPUTS, InputNoise
from tests import reference
from tests.reference.input_noise import Array

NEAR = np.zeros((1, 1))  # the gate lets nothing through


@dataclass
class Case:
    """How log s^2 grows with the first feature and with the prediction; heavy: t-distributed residuals; copies: of each
    example; outlier: how many deviations one residual is, where there is least noise."""

    count: int
    outputs: int = 1
    by_feature: float = 0.0
    by_mean: float = 0.0
    heavy: bool = False
    unit: float = 1.0
    zero: float = 5.0
    copies: int = 1
    outlier: float = 0.0


CASES = {
    "by a feature": Case(60, by_feature=2.0),
    "by the prediction": Case(60, by_mean=1.5),
    "two outputs": Case(60, outputs=2, by_feature=2.0, by_mean=0.5),
    "heavy tails": Case(60, by_feature=4.0, heavy=True),
    "one residual that no noise explains": Case(120, by_feature=3.0, outlier=4.0),
    "predictions far from zero": Case(60, by_mean=1.5, unit=1e4),
    "predictions without digits": Case(60, by_feature=4.0, zero=1e6),
    "the same for all": Case(60),
    "copies": Case(60, by_feature=2.0, copies=3),
    "copies of few": Case(LEAST_EXAMPLES - 1, by_feature=4.0, copies=3),
    "too few": Case(LEAST_EXAMPLES - 1, by_feature=4.0),
}


def drawn(case: Case, seed: int = 0) -> tuple[Array, Array, Array]:
    """psi (n, 3), mean and squares (n, K)."""
    rng = np.random.default_rng(seed)
    psi, mean = rng.uniform(-1, 1, (case.count, 3)), rng.normal(size=(case.count, case.outputs))
    s = np.exp((case.by_feature * psi[:, :1] + case.by_mean * mean) / 2)
    squares = np.square(s * (rng.standard_t(3, mean.shape) if case.heavy else rng.normal(size=mean.shape)))
    if case.outlier:
        squares[psi[:, 0].argmin()] = case.outlier**2 * squares.mean(axis=0)
    mean, squares = case.unit * (mean + case.zero), squares / squares.mean(axis=0)
    return np.repeat(psi, case.copies, 0), np.repeat(mean, case.copies, 0), np.repeat(squares, case.copies, 0)


def fitted(psi: Array, mean: Array, squares: Array) -> InputNoise:
    found = InputNoise.fit(psi, mean, squares, 0)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("name", CASES)
def test_equals_the_definition(name: str) -> None:
    psi, mean, squares = drawn(CASES[name])
    expected, found = reference.input_noise(psi, mean, squares, 3), InputNoise.fit(psi, mean, squares, 3)
    if expected is None:
        assert found is None
        return
    assert found is not None
    noise, left_out = found
    assert (noise.gain, noise.error) == pytest.approx((expected.gain, expected.error), rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(left_out, expected.left_out, rtol=1e-3)
    others = drawn(CASES[name], seed=1)
    for p, f in zip(3 * others[0][:20], others[1][:20], strict=True):
        np.testing.assert_allclose(noise.of(p[np.newaxis], f[np.newaxis], NEAR)[0], expected.scale(p, f), rtol=1e-3)


def test_far_from_the_data_it_is_no_less_than_one_noise_for_all() -> None:
    psi, mean, squares = drawn(Case(60, by_feature=4.0))
    noise, unusual = fitted(psi, mean, squares), np.geomspace(0.1, 1e6, 60)
    passed = np.maximum(1 - 2.0 / unusual, 0)[:, np.newaxis]
    near, found = noise.of(psi, mean, NEAR), noise.of(psi, mean, passed)
    expected = [reference.far_scale(s, u, 2.0) for s, u in zip(near[:, 0], unusual, strict=True)]
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-9)
    assert (found[unusual <= 2] == near[unusual <= 2]).all()
    assert (near[-10:] < 0.9).any()
    assert found[-10:].min() > 0.999


def test_finds_the_noise_that_the_data_have() -> None:
    case = Case(4000, by_feature=2.0, by_mean=1.0)
    psi, mean, squares = drawn(case)
    found = InputNoise.fit(psi, mean, squares, 0)
    assert found is not None
    s = np.exp((2.0 * psi[:, :1] + mean - 5) / 2)
    ratio = found[0].of(psi, mean, NEAR) / s
    assert np.log(ratio).std() < 0.06
    np.testing.assert_allclose((squares / np.square(found[1])).mean(axis=0), 1)


def test_a_residual_that_no_noise_explains_hides_no_noise() -> None:
    """Under a normal distribution it alone is worth more than all others."""
    for seed in range(5):
        assert InputNoise.fit(*drawn(CASES["one residual that no noise explains"], seed), seed) is not None


@pytest.mark.parametrize("heavy", [False, True])
def test_one_noise_for_all_is_seldom_taken_for_another(heavy: bool) -> None:
    taken = [InputNoise.fit(*drawn(Case(120, heavy=heavy), seed), seed) for seed in range(20)]
    gains = [found[0].gain for found in taken if found is not None]
    assert len(gains) <= 5
    assert max(gains, default=0.0) < 0.05


@pytest.mark.parametrize("copies", [2, 4])
def test_copies_tell_no_noise(copies: int) -> None:
    """The examples left out are not those of the fit."""
    taken = [InputNoise.fit(*drawn(Case(60, copies=copies), seed), seed) for seed in range(20)]
    assert sum(found is not None for found in taken) <= 5


def test_too_many_outputs_or_numbers_that_are_not_finite_have_one_noise() -> None:
    psi, mean, squares = drawn(Case(60, by_feature=4.0))
    assert InputNoise.fit(psi, mean, squares, 0) is not None
    many = MOST_OUTPUTS + 1
    assert InputNoise.fit(psi, np.repeat(mean, many, 1), np.repeat(squares, many, 1), 0) is None
    psi[3, 1] = np.inf
    assert InputNoise.fit(psi, mean, squares, 0) is None


def test_an_output_that_is_exact_but_once_divides_by_nothing() -> None:
    psi, mean, squares = drawn(Case(60))
    squares[:] = 0
    squares[7] = 60
    found = InputNoise.fit(psi, mean, squares, 0)
    assert found is None or np.isfinite(found[0].of(psi, mean, NEAR)).all()


@given(seed=st.integers(0, 20), far=st.floats(-1e6, 1e6), constant=st.booleans())
def test_every_input_has_a_noise_within_those_of_the_examples(seed: int, far: float, constant: bool) -> None:
    psi, mean, squares = drawn(Case(60, outputs=2, by_feature=4.0, by_mean=1.0), seed)
    if constant:
        mean[:] = 7.0
    found = InputNoise.fit(psi, mean, squares, seed)
    if found is None:
        return
    noise, inside = found[0], found[0].of(psi, mean, NEAR)
    scale = noise.of(np.full((1, 3), far), far * np.array([[1.0, -1.0]]), NEAR)
    assert (scale >= inside.min(axis=0) * (1 - 1e-12)).all()
    assert (scale <= inside.max(axis=0) * (1 + 1e-12)).all()


@given(seed=st.integers(0, 20), unit=st.sampled_from([1e-6, 1e-2, 1e6]), shift=st.floats(-10, 10))
def test_the_unit_and_the_zero_of_an_output_change_nothing(seed: int, unit: float, shift: float) -> None:
    psi, mean, squares = drawn(Case(60, by_feature=4.0, by_mean=1.0), seed)
    first, other = (InputNoise.fit(psi, values, squares, seed) for values in (mean, unit * (mean + shift)))
    assert (first is None) == (other is None)
    if first is not None and other is not None:
        np.testing.assert_allclose(
            other[0].of(psi, unit * (mean + shift), NEAR), first[0].of(psi, mean, NEAR), rtol=1e-5
        )


def test_the_same_in_float32() -> None:
    psi, mean, squares = drawn(Case(60, by_feature=4.0))
    found = InputNoise.fit(psi, mean, squares, 0)
    assert found is not None
    single = converted(found[0], torch.zeros(()))(
        torch.tensor(psi).float(), torch.tensor(mean).float(), torch.zeros(1, 1)
    )
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, found[0].of(psi, mean, NEAR), rtol=1e-5)
