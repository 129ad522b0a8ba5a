"""Selective classification and detection of foreign data, against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.offline.evaluation.selective import augrc, aurc, auroc, false_positive_rate
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
