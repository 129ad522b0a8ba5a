"""The gate: against the definition, one input at a time; and what must hold for all variances."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from demur.offline.features.gate import ORDINARY, TINY, Gate
from tests.reference import gate as reference

SHARES = {"classes": np.ones(1), "values": np.array([0.25, 4.0, 1.0])}


def variances(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """v_S (n, 3), heavy-tailed, and v (n,) in [0, 1]."""
    rng = np.random.default_rng(seed)
    return 1e-3 * rng.lognormal(0, 1.5, (count, 3)), rng.beta(1, 6, count)


@pytest.mark.parametrize("count", [5, 39, 300])
@pytest.mark.parametrize("kind", SHARES)
def test_equals_the_definition(kind: str, count: int) -> None:
    share, (subnetwork, added), (far, beyond) = SHARES[kind], variances(count), variances(50, seed=1)
    expected = reference.gate(subnetwork, added, share)
    found = Gate.fit((subnetwork / share).mean(1), added).scaled(1.7)
    variance, part, _, _ = found.of(10 * far, beyond, share)
    for n in range(50):
        whole, own = expected(10 * far[n], float(beyond[n]), 1.7)
        np.testing.assert_allclose(variance[n], whole, rtol=1e-9, atol=1e-12)
        assert part[n] == pytest.approx(own, rel=1e-9, abs=1e-12)


def test_so_many_held_out_inputs_pay_nothing() -> None:
    subnetwork, added = variances(500)
    variance, part, whole, _ = Gate.fit(subnetwork.mean(1), added).of(subnetwork, added, np.ones(1))
    assert (variance == 0).all(axis=1).mean() == pytest.approx(ORDINARY, abs=0.002)
    assert (part[(variance == 0).all(axis=1)] == 0).all()
    assert (whole > 0).all()


def test_a_part_that_is_zero_for_most_is_left_out() -> None:
    """Whatever its variance is for others."""
    subnetwork, added = variances(100)
    subnetwork[: 2 * 100 // 3] = 0
    found = Gate.fit(subnetwork.mean(1), added)
    assert found.subnetwork == 0
    _, _, whole, _ = found.of(1e6 * subnetwork, added, np.ones(1))
    np.testing.assert_allclose(whole, np.repeat(found.added * added[:, np.newaxis], 3, axis=1))


def test_a_part_that_a_prior_leaves_nothing_is_left_out() -> None:
    subnetwork, added = variances(100)
    least = float(np.median(subnetwork.mean(1)))
    assert Gate.fit(subnetwork.mean(1), added, 0.9e6 * least).subnetwork > 0
    assert Gate.fit(subnetwork.mean(1), added, 1.1e6 * least).subnetwork == 0


def test_without_any_variance_nothing_is_divided_by_zero() -> None:
    found = Gate.fit(np.zeros(50), np.zeros(50))
    assert found.threshold == TINY
    variance, part, _, _ = found.of(np.zeros((2, 3)), np.array([0.0, 0.5]), np.ones(1))
    assert not variance[0].any()
    assert part[1] == pytest.approx(found.added * 0.5)


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=3), st.floats(0, 1), st.floats(1e-3, 1e3))
def test_never_negative_never_more_than_without_and_growing(own: list[float], added: float, c: float) -> None:
    fitted = Gate.fit(variances(100)[0].mean(1), variances(100)[1]).scaled(c)
    near, far = np.array([own]), np.array([own]) * 1.5 + 0.1
    for share in SHARES.values():
        variance, part, whole, passed = fitted.of(near, np.array([added]), share)
        assert (variance >= 0).all()
        assert (variance <= whole).all()
        np.testing.assert_allclose(passed * whole, variance)
        assert 0 <= part[0] <= fitted.added * added
        assert (fitted.of(far, np.array([added]), share)[0] >= variance).all()


def test_there_is_no_step_in_float32() -> None:
    fitted = Gate.fit(variances(200)[0].mean(1), variances(200)[1])
    end = torch.tensor([[fitted.threshold / fitted.subnetwork]] * 5).float()
    own = end * torch.tensor([[1 - 1e-3], [1 - 1e-6], [1.0], [1 + 1e-6], [1 + 1e-3]])
    variance = fitted(own, torch.zeros(5, 1), None)[0].flatten() / fitted.threshold
    assert variance.tolist() == pytest.approx([0, 0, 0, 1e-6, 1e-3], abs=3e-7)
