"""service/maths/estimated_accuracy.py: confidences, and what held-out examples showed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.maths.estimated_accuracy import HeldOutAccuracy, confidence


def test_confidences_by_hand() -> None:
    p = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    np.testing.assert_allclose(confidence(p, False), [0.7, 0.5])
    np.testing.assert_allclose(confidence(p, True), [0.9 * 0.7 * 0.8, 0.5 * 0.7 * 0.8])


@given(st.integers(1, 400), st.integers(0, 400), st.floats(0, 1))
def test_the_interval_is_that_of_clopper_and_pearson(n: int, wrong: int, sure: float) -> None:
    right = max(0, n - wrong)
    found = HeldOutAccuracy.of(np.full(n, sure), np.arange(n) < right)
    assert found is not None
    assert found.excess == pytest.approx(sure - right / n, abs=1e-12)
    assert found.low <= right / n <= found.high
    # By definition: were the accuracy an end of the interval, so many right answers would be this improbable.
    if right:
        assert probability(range(right, n + 1), n, found.low) == pytest.approx(0.005, rel=1e-6)
    if right < n:
        assert probability(range(right + 1), n, found.high) == pytest.approx(0.005, rel=1e-6)


def probability(counts: range, n: int, share: float) -> float:
    """Of one of these counts among n, each of which is counted with this probability."""

    def log_of(k: int) -> float:
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        none = (n - k) * math.log1p(-share) if k < n else 0.0
        return ways + (k * math.log(share) if k else 0.0) + none

    return math.fsum(math.exp(log_of(k)) for k in counts)


def test_nothing_is_known_of_no_examples() -> None:
    assert HeldOutAccuracy.of(np.zeros(0), np.zeros(0, bool)) is None


@pytest.mark.parametrize("bias", [-0.1, 0.0, 0.1])
def test_the_estimate_follows_an_accuracy_that_confidence_follows(bias: float) -> None:
    """Confidences that are wrong by the same everywhere: the excess takes it off."""
    rng = np.random.default_rng(0)

    def drawn(least: float, most: float) -> tuple[np.ndarray, np.ndarray]:
        truth = rng.uniform(least, most, 100_000)
        return truth + bias, rng.random(100_000) < truth

    held_out = HeldOutAccuracy.of(*drawn(0.7, 0.9))
    assert held_out is not None
    for least in (0.7, 0.5, 0.2):
        sure, right = drawn(least, 0.9)
        assert sure.mean() - held_out.excess == pytest.approx(right.mean(), abs=0.01)
