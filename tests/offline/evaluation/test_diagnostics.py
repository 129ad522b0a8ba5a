"""The curves of the report against their definitions, written out."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.offline.evaluation.diagnostics import (
    ECE_BINS,
    augrc,
    aurc,
    auroc,
    coverage_band,
    coverage_curve,
    equal_mass,
    false_positive_rate,
    rejection_curve,
    reliability,
)
from tests import reference

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 40), st.integers(1, 60))
def test_areas_equal_their_definitions_over_pairs(seed: int, n: int, values: int) -> None:
    rng = np.random.default_rng(seed)
    score, wrong = rng.integers(0, values, n) / 4, rng.random(n) < 0.4
    assert aurc(score, wrong) == pytest.approx(reference.aurc(score.tolist(), wrong.tolist()), abs=1e-12)
    assert augrc(score, wrong) == pytest.approx(reference.augrc(score.tolist(), wrong.tolist()), abs=1e-12)


@given(SEEDS, st.integers(2, 40))
def test_augrc_is_traubs_formula_of_auroc_and_accuracy(seed: int, n: int) -> None:
    """AUGRC = (1 - AUROC_f) acc (1 - acc) + (1 - acc)^2 / 2 (Traub et al., 2024, section 3)."""
    rng = np.random.default_rng(seed)
    score, wrong = rng.integers(0, 9, n) / 4, rng.random(n) < 0.4
    wrong[:2] = [True, False]
    area, accuracy = auroc(score[~wrong], score[wrong]), 1 - wrong.mean()
    expected = (1 - area) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert augrc(score, wrong) == pytest.approx(expected, abs=1e-12)


def test_no_error_has_no_area() -> None:
    score = np.array([0.1, 0.2, 0.3])
    assert (aurc(score, np.zeros(3, bool)), augrc(score, np.zeros(3, bool))) == (0, 0)
    assert augrc(score, np.ones(3, bool)) == pytest.approx(0.5)


@given(SEEDS, st.integers(1, 40), st.integers(1, 40))
def test_rates_of_foreign_data_by_counting(seed: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    inside, foreign = rng.integers(0, 12, n) / 4, rng.integers(4, 16, m) / 4
    threshold = min(t for t in inside if (inside <= t).mean() >= 0.95)
    assert false_positive_rate(inside, foreign) == pytest.approx((foreign <= threshold).mean())
    wins = [1.0 if b > a else 0.5 if b == a else 0.0 for b in foreign for a in inside]
    assert auroc(inside, foreign) == pytest.approx(sum(wins) / len(wins))


SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed: int, n: int = 60, k: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(k, 0.3), n), rng.integers(0, k, n)


@pytest.mark.parametrize("examples", [1, 7, 150, 5000])
def test_the_band_of_coverage_equals_binomial_tails(examples: int) -> None:
    low, high = (round(share * examples) for share in coverage_band(examples, 0.95, 0.99))

    def tail(counts: range) -> float:
        return math.fsum(math.comb(examples, k) * 0.95**k * 0.05 ** (examples - k) for k in counts)

    if examples <= 150:
        assert tail(range(low)) <= 0.005 < tail(range(low + 1))
        assert tail(range(high + 1, examples + 1)) <= 0.005 < tail(range(high, examples + 1))
    else:
        assert low / examples == pytest.approx(0.95 - 2.576 * math.sqrt(0.95 * 0.05 / examples), abs=1e-3)
        assert high / examples == pytest.approx(0.95 + 2.576 * math.sqrt(0.95 * 0.05 / examples), abs=1e-3)


def test_reliability_bin_by_bin() -> None:
    p, y = drawn(0)
    rows = []
    for b in range(ECE_BINS):
        inside = [i for i in range(len(p)) if b == min(int(p[i].max() * ECE_BINS), ECE_BINS - 1)]
        if inside:
            right = [float(np.argmax(p[i]) == y[i]) for i in inside]
            rows.append((sum(p[i].max() for i in inside) / len(inside), sum(right) / len(inside), len(inside)))
    confidence, accuracy, count = zip(*rows, strict=True)
    found = reliability(p, y)
    np.testing.assert_allclose(found.confidence, confidence)
    np.testing.assert_allclose(found.accuracy, accuracy)
    assert found.count.tolist() == list(count)
    assert found.ece == pytest.approx(sum(n * abs(a - c) for c, a, n in rows) / len(p))


def test_full_confidence_falls_into_the_last_bin() -> None:
    found = reliability(np.eye(3), np.array([0, 1, 0]))
    assert (found.confidence.tolist(), found.count.tolist()) == ([1.0], [3])
    assert found.ece == pytest.approx(1 / 3)


@given(SEEDS, st.integers(1, 40))
def test_rejection_is_what_each_threshold_would_leave(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    score, loss = rng.integers(0, 12, n) / 4, rng.normal(size=n)
    thresholds = sorted(set(score), reverse=True)
    share, mean_loss = rejection_curve(score, loss)
    np.testing.assert_allclose(share, [(score > t).mean() for t in thresholds], atol=1e-12)
    np.testing.assert_allclose(mean_loss, [loss[score <= t].mean() for t in thresholds], atol=1e-12)


def test_nothing_rejected_is_the_first_point() -> None:
    share, mean_loss = rejection_curve(np.array([0.3, 0.1, 0.2]), np.array([1, 0, 0]))
    np.testing.assert_allclose(share, [0, 1 / 3, 2 / 3])
    np.testing.assert_allclose(mean_loss, [1 / 3, 0, 0])


def test_coverage_counts_targets_within_the_quantiles() -> None:
    rng = np.random.default_rng(1)
    mean, std, y = rng.normal(size=(80, 2)), rng.uniform(0.5, 2, (80, 2)), rng.normal(size=(80, 2))
    levels = np.array([0.1, 0.5, 0.95])
    half = [statistics.NormalDist().inv_cdf((1 + level) / 2) for level in levels]
    expected = [float((np.abs(y - mean) <= z * std).mean()) for z in half]
    np.testing.assert_allclose(coverage_curve(mean, std, y, levels), expected)


@given(SEEDS, st.integers(1, 60), st.integers(1, 30))
def test_bins_of_equal_mass_by_rank(seed: int, n: int, values: int) -> None:
    """Each confidence goes into the bin of its rank among all, one at a time."""
    rng = np.random.default_rng(seed)
    confidence, correct = rng.integers(0, values, n) / values, rng.random(n) < 0.5
    bins: dict[int, list[int]] = {}
    for i in range(n):
        rank = sum(other < confidence[i] for other in confidence)
        bins.setdefault(rank * ECE_BINS // n, []).append(i)
    gaps = [
        len(inside) / n * abs(sum(correct[i] for i in inside) - sum(confidence[i] for i in inside)) / len(inside)
        for inside in bins.values()
    ]
    assert equal_mass(confidence, correct).ece == pytest.approx(sum(gaps), abs=1e-12)


def test_bins_of_equal_mass_hold_as_many_each() -> None:
    confidence = np.random.default_rng(3).random(150)
    assert equal_mass(confidence, confidence > 0.5).count.tolist() == [10] * ECE_BINS
