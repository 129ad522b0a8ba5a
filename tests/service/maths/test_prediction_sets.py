"""service/maths/prediction_sets.py: sets and intervals hold the truth as often as they say."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from demur.service.maths.prediction_sets import (
    ClassSets,
    ConformalIntervals,
    LabelSets,
    PredictionSets,
    conformal_quantile,
    set_scores,
    tuned_sets,
)
from tests import reference

Array = npt.NDArray[Any]
LEVELS = [Fraction(1, 2), Fraction(9, 10), Fraction(19, 20), Fraction(99, 100)]


@st.composite
def probabilities(draw: st.DrawFn) -> Array:
    """A few rows, with ties and zeros."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(2, 6)))
    weights = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 3)))
    weights[:, 0] += 1
    found: Array = weights / weights.sum(axis=1, keepdims=True)
    return found


@given(probabilities(), st.sampled_from([0.0, 0.1, 1.0]), st.integers(1, 4))
def test_the_score_of_each_class_is_its_definition(p: Array, penalty: float, unpenalised: int) -> None:
    found = set_scores(p, penalty, unpenalised)
    expected = [[reference.set_score(row, k, penalty, unpenalised) for k in range(len(row))] for row in p]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=120), st.sampled_from(LEVELS))
def test_the_quantile_is_the_order_statistic(scores: list[float], level: Fraction) -> None:
    assert conformal_quantile(np.sort(scores), float(level)) == reference.quantile_of(scores, level)


@given(probabilities(), st.sampled_from(LEVELS))
def test_sets_grow_with_the_level_and_hold_the_most_probable_class(p: Array, level: Fraction) -> None:
    sets = PredictionSets(np.linspace(0.3, 1.4, 40), 0.1, 1)
    small, large = sets.members(p, 0.3), sets.members(p, float(level))
    assert (small <= large).all()
    assert small[np.arange(len(p)), p.argmax(axis=1)].all()


def test_with_too_few_scores_every_class_belongs_to_the_set() -> None:
    p = np.array([[0.98, 0.01, 0.01]])
    assert PredictionSets(np.full(18, 0.5), 0.0, 1).members(p, 0.95).all()
    assert not PredictionSets(np.full(19, 0.5), 0.0, 1).members(p, 0.95).all()


@given(probabilities(), st.sampled_from(LEVELS), st.data())
def test_sets_by_class_compare_each_with_its_own_examples(p: Array, level: Fraction, data: st.DataObject) -> None:
    outputs = p.shape[1]
    known = data.draw(st.lists(st.tuples(st.floats(0, 1.5), st.integers(0, outputs - 1)), min_size=1, max_size=80))
    scores, classes = np.array([score for score, _ in known]), np.array([label for _, label in known])
    found = ClassSets(scores, 0.1, 1, classes, outputs).members(p, float(level))
    for row, held in zip(p, found, strict=True):
        for k in range(outputs):
            largest = reference.quantile_of(scores[classes == k], level)
            own = reference.set_score(row, k, 0.1, 1)
            if abs(own - largest) > 1e-9:  # sums in another order
                assert held[k] == (own <= largest or k == row.argmax())


def draws(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Probabilities of a classifier that is far too sure of itself, and the true classes."""
    logits = rng.normal(scale=1.5, size=(count, 8))
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    targets = (truth.cumsum(axis=1) > rng.random((count, 1))).argmax(axis=1)
    sure = np.exp(4 * logits)
    return sure / sure.sum(axis=1, keepdims=True), targets


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
def test_sets_hold_the_true_class_as_often_as_they_say(level: float) -> None:
    rng = np.random.default_rng(1)
    covered, sizes, every = [], [], []
    for _ in range(100):
        (tuning, tuning_targets), (held_out, own), (new, truth) = (draws(rng, n) for n in (200, 200, 500))
        penalty, unpenalised = tuned_sets(tuning, tuning_targets)
        scores = set_scores(held_out, penalty, unpenalised)[np.arange(200), own]
        members = PredictionSets(scores, penalty, unpenalised).members(new, level)
        covered.append(members[np.arange(500), truth].mean())
        sizes.append(members.sum(axis=1).mean())
        plain = PredictionSets(set_scores(held_out, 0.0, 1)[np.arange(200), own], 0.0, 1)
        every.append(plain.members(new, level).sum(axis=1).mean())
    assert np.mean(covered) >= level - 3 * np.std(covered) / 10
    assert np.mean(sizes) <= np.mean(every)  # the penalty earns its place


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_sets_by_class_hold_a_rare_class_as_often_as_they_say(level: float) -> None:
    rng = np.random.default_rng(4)
    held: list[list[float]] = []
    kept: list[list[float]] = []

    def rare(count: int) -> tuple[Array, Array]:
        y = (rng.random(count) < 0.04).astype(int)
        p = 1 / (1 + np.exp(5 - 2 * y - rng.normal(size=count)))
        return np.stack([1 - p, p], axis=1), y

    for _ in range(200):
        (held_out, own), (new, truth) = rare(1500), rare(1500)
        scores = set_scores(held_out, 0.0, 1)[np.arange(1500), own]
        for found, sets in ((held, ClassSets(scores, 0.0, 1, own, 2)), (kept, PredictionSets(scores, 0.0, 1))):
            right = sets.members(new, level)[np.arange(1500), truth]
            found.append([right[truth == k].mean() for k in (0, 1)])
    assert np.all(np.mean(held, axis=0) >= level - 3 * np.std(held, axis=0) / math.sqrt(200))
    assert np.mean(held, axis=0)[1] < level + 0.03
    assert np.mean(kept, axis=0)[1] < 0.6


def test_intervals_hold_every_output_where_gaussian_ones_do_not() -> None:
    rng, level, inside = np.random.default_rng(2), 0.9, []
    for _ in range(200):
        noise = rng.standard_t(2, size=(300, 2)) * [1.0, 5.0]
        q = ConformalIntervals(np.abs(noise[:100])).half_widths(level)
        assert q is not None
        inside.append((np.abs(noise[100:]) <= q).mean(axis=0))
    covered = np.mean(inside, axis=0)
    assert np.all(np.abs(covered - 91 / 101) < 0.01)  # k / (n + 1)
    assert math.erf(1.645 / math.sqrt(2)) > 0.89  # what a Gaussian of the same level assumes


def test_intervals_need_enough_residuals() -> None:
    residuals = np.arange(19.0)[:, np.newaxis]
    q = ConformalIntervals(residuals).half_widths(0.95)
    assert q is not None
    assert q.tolist() == [18.0]
    assert ConformalIntervals(residuals).half_widths(0.96) is None


def test_sets_of_two_classes_tell_doubtful_inputs_from_others() -> None:
    """At 95 %, the less probable class is in the set where the other is doubtful, and only there."""
    rng = np.random.default_rng(3)
    first = rng.beta(2.0, 2.0, size=4000)
    p = np.stack([first, 1 - first], axis=1)
    y = (rng.uniform(size=4000) > first).astype(int)
    sets = PredictionSets(set_scores(p[:2000], 0.0, 1)[np.arange(2000), y[:2000]], 0.0, 1)
    members = sets.members(p[2000:], 0.95)
    assert members[np.arange(2000), y[2000:]].mean() == pytest.approx(0.95, abs=0.015)
    both = members.all(axis=1)
    assert 0.3 < both.mean() < 0.8
    assert p[2000:].max(axis=1)[both].max() <= p[2000:].max(axis=1)[~both].min()


@pytest.mark.parametrize("level", [95, 1.0, 0.0, -1, float("nan")])
def test_a_level_is_a_probability(level: float) -> None:
    scores = np.random.default_rng(0).random((50, 3))
    for ask in (
        lambda: PredictionSets(scores[:, 0], 0.0, 1).members(scores, level),
        lambda: LabelSets(scores).members(scores, level),
        lambda: ConformalIntervals(scores).around(scores, scores, level),
    ):
        with pytest.raises(ValueError, match=r"level: found .*, expected a number between 0 and 1"):
            ask()
