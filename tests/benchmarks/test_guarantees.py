"""The resampling of `python -m benchmarks guarantees`: what theory expects, and that it finds what does not hold."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from benchmarks.experiments.guarantees import splits
from benchmarks.experiments.guarantees.data import Pool, ValuePool


@pytest.fixture
def pool() -> Pool:
    """Three classes; the score tells which of the predictions are right."""
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet([0.1] * 3, 3000)
    targets = np.array([rng.choice(3, p=p) for p in probabilities])
    return Pool(1 - probabilities.max(1), probabilities, targets, 600, 600)


def test_expected_counts_are_those_of_all_orders() -> None:
    """All ways to place n = 4 calibration values among m = 2 new ones are equally likely."""
    n, m, k = 4, 2, 3
    orders = list(combinations(range(n + m), n))
    counts = [sum(place not in order for place in range(order[k - 1])) for order in orders]
    shares = [Fraction(counts.count(x), len(orders)) for x in range(m + 1)]
    cumulative = np.cumsum([float(share) for share in shares])
    expected = int(cumulative.searchsorted(0.025)), int(cumulative.searchsorted(0.975))
    assert splits.expected_counts(m, k, n) == expected == (0, 2)


def test_expected_counts_hold_most_of_what_is_simulated() -> None:
    m, k, n, rng = 500, 10, 200, np.random.default_rng(0)
    low, high = splits.expected_counts(m, k, n)
    counts = np.array([(rng.random(m) > np.sort(rng.random(n))[-k]).sum() for _ in range(4000)])
    assert np.mean((counts >= low) & (counts <= high)) == pytest.approx(0.955, abs=0.012)
    assert np.mean(counts < low) < 0.035
    assert np.mean(counts > high) < 0.035


def test_a_binomial_of_two_coins_is_central() -> None:
    assert splits.binomial_counts(100, 0.5) == (40, 60)


def test_the_rates_of_exchangeable_scores_hold(pool: Pool) -> None:
    rows = splits.rates(pool, range(100), np.random.default_rng(1))
    assert [(row["rate"], row["rule"]) for row in rows[:2]] == [(0.01, "one"), (0.01, "by class")]
    for row in rows:
        assert row["mean"] == pytest.approx(row["rate"], abs=0.005)
        assert row["inside"] >= 0.9


def test_what_is_certified_is_true_of_the_pool(pool: Pool) -> None:
    rows = splits.certificates(pool, range(40), np.random.default_rng(1))
    assert rows[0]["certified"] > 0.5
    for row in rows:
        assert row["holds"] >= 0.95 - 2 * 0.035
    none = splits.certificates(replace(pool, targets=(pool.targets + 1) % 3), range(3), np.random.default_rng(1))
    assert [(row["certified"], row["holds"], row["accepted"]) for row in none] == [(0.0, 1.0, None)] * 3


def test_sets_hold_the_truth(pool: Pool) -> None:
    for row in splits.sets(pool, range(20), np.random.default_rng(1)):
        assert row["coverage"] >= row["level"] - 0.01
        assert 1 <= row["size"] <= 3


def test_gaussian_intervals_of_heavy_tails_are_found_out() -> None:
    rng = np.random.default_rng(0)
    targets = rng.standard_t(3, (4000, 1))
    found = ValuePool(rng.random(4000), np.zeros_like(targets), np.full_like(targets, targets.std()), targets, 500)
    for row in splits.intervals(found, range(100), np.random.default_rng(1)):
        assert row["conformal"] == pytest.approx(row["level"], abs=0.005)
        assert row["inside"] >= 0.9
        low, high = row["gaussian_interval"]
        assert low < row["level"] < high
        if row["level"] != 0.95:
            assert not low <= row["gaussian"] <= high
    for row in splits.value_rates(found, range(100), np.random.default_rng(1)):
        assert row["mean"] == pytest.approx(row["rate"], abs=0.005)
        assert row["inside"] >= 0.9
