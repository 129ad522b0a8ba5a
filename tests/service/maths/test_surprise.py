"""The largest surprise: either of two scores suffices."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.maths.predictive import class_probabilities, entropy
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.score_distribution import TAIL_LEVEL, ScoreDistribution
from demur.service.maths.scores import SCORES
from demur.service.maths.surprise import Component, LargestSurprise, as_odds
from tests import reference

Array = npt.NDArray[Any]
LEAST = math.log(20)
NAMES = ("predictive_entropy", "distance")
LARGEST = float(np.finfo(np.float32).max)


def singles_of(mean: Array, variance: Array, distance: Array) -> dict[str, Array]:
    return {"predictive_entropy": entropy(class_probabilities(mean, variance, 1.0)[0]), "distance": distance}


def drawn(count: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    mean = (3 * rng.standard_normal((count, 4))).astype(np.float32)
    variance = (2 * rng.random((count, 4)) ** 2).astype(np.float32)
    return singles_of(mean, variance, rng.pareto(3, count).astype(np.float32))


def surprise_of(singles: dict[str, Array], end: float | None = None) -> LargestSurprise:
    """end: of the distance."""
    parts = []
    for name, least, own in zip(NAMES, (0.0, LEAST), (None, end), strict=True):
        distribution = ScoreDistribution.of(as_odds(SCORES[name].scored(singles)[0], own))
        assert distribution is not None
        parts.append(Component(SCORES[name], distribution, least, own))
    return LargestSurprise(tuple(parts))


FITTED = surprise_of(drawn(300))


def at(distances: list[float], logits: tuple[float, ...] = (9.0, 0.0, 0.0, 0.0)) -> Array:
    """The surprise of one row of logits, without variance, at several distances."""
    mean = np.array([logits] * len(distances), np.float32)
    return FITTED.scored(singles_of(mean, np.zeros_like(mean), np.array(distances, np.float32)))[0]


@pytest.mark.parametrize("end", [None, 1.0, 10.0])
@pytest.mark.parametrize("count", [10, 20, 300])
def test_the_definition(count: int, end: float | None) -> None:
    fitted_to, outputs = drawn(count), drawn(60, seed=1)
    levels = np.linspace(0, TAIL_LEVEL, min(count, 200))
    each = []
    for name, own in zip(NAMES, (None, end), strict=True):
        scores, asked = (SCORES[name].scored(each)[0].tolist() for each in (fitted_to, outputs))
        if own is not None:
            scores, asked = ([reference.odds(s, own) for s in each] for each in (scores, asked))
        rounded = [reference.rounded_up(s) for s in scores]
        values = np.quantile(rounded, levels)
        tail = reference.pareto_tail([s - values[-1] for s in rounded if s > values[-1]])
        each.append([reference.surprise(s, values.tolist(), levels.tolist(), *tail) for s in asked])
    expected = [reference.largest_surprise(list(pair), [0.0, LEAST]) for pair in zip(*each, strict=True)]
    found, leading = surprise_of(fitted_to, end).scored(outputs)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    by_distance = [u >= LEAST and u > other for other, u in zip(*each, strict=True)]
    np.testing.assert_array_equal(leading, by_distance)
    assert leading.any()
    assert not leading.all()


def test_the_distance_counts_beyond_its_95_percent_quantile_only() -> None:
    """Nearer than that, two inputs with the same probabilities have the same score."""
    reached = FITTED.components[1].distribution
    near, begin = 0.0, reached.start + reached.scale * math.expm1(reached.shape * math.log(2)) / reached.shape
    assert reached.surprise_at(np.array([begin]))[0] == pytest.approx(LEAST)
    inside, outside = at([near, begin * 0.999]), at([begin * 1.001])
    assert inside[0] == inside[1]
    assert outside[0] == pytest.approx(LEAST, abs=0.01)
    assert outside[0] > inside[0]


def test_either_alone_suffices() -> None:
    sure, unsure, near, far = (30.0, 0.0, 0.0, 0.0), (0.1, 0.0, 0.0, 0.0), 0.01, 1e4
    usual = at([near], sure)[0]
    assert usual < 0.1
    assert at([far], sure)[0] > 8  # where a sum of both, of equal weights, would be half of it
    assert at([near], unsure)[0] == at([far * 0], unsure)[0] > usual


@given(st.lists(st.floats(0, LARGEST, width=32), min_size=2, max_size=8))
def test_finite_and_monotone_in_the_distance(distances: list[float]) -> None:
    found = at(sorted([*distances, 0.0, LARGEST]))
    assert np.isfinite(found).all()
    assert (np.diff(found) >= -1e-12).all()


@given(st.lists(st.floats(0, 60), min_size=2, max_size=8), st.floats(0, LARGEST, width=32))
def test_monotone_in_the_entropy(margins: list[float], distance: float) -> None:
    found = [at([distance], (margin, 0.0, 0.0, 0.0))[0] for margin in sorted(margins, reverse=True)]
    assert (np.diff(found) >= -1e-9).all()


@pytest.mark.parametrize("place", [0, 1])
def test_one_component_alone(place: int) -> None:
    part, outputs = replace(FITTED.components[place], least=0.0), drawn(20, seed=2)
    found, leading = LargestSurprise((part,)).scored(outputs)
    np.testing.assert_allclose(found, part.distribution.surprise_at(part.score.scored(outputs)[0]))
    assert not leading.any()


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_distance_that_is_not_finite_makes_the_score_so() -> None:
    """So that the example is rejected, whatever its probabilities."""
    found = at([1.0, np.nan, np.inf])
    np.testing.assert_array_equal(np.isfinite(found), [True, False, False])


def test_p_values_are_valid() -> None:
    """The share of new examples rejected at 10 %, over many calibration sets, is at most 10 % (within chance)."""
    fitted, shares = surprise_of(drawn(200, seed=5)), []
    for seed in range(10, 110):
        rule = RejectionRule(np.sort(fitted.scored(drawn(99, seed))[0]), 0.1)
        shares.append(rule.rejected(fitted.scored(drawn(200, seed + 1000))[0]).mean())
    assert np.mean(shares) == pytest.approx(0.1, abs=0.015)


@given(st.floats(0.0, 2.0), st.floats(0.1, 10.0))
def test_odds_keep_the_order(score: float, end: float) -> None:
    """Also where the room becomes the least one, and beyond the end."""
    scores = np.sort(end * np.array([score, np.nextafter(score, 3), 0.0, 0.989, 0.9901, 1.0, 1.5]))
    found = as_odds(scores, end)
    assert np.isfinite(found).all()
    assert (np.diff(found) >= 0).all()
    expected = [reference.odds(s, end) for s in scores.tolist()]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


def test_what_is_near_to_the_end_is_beyond_all_others() -> None:
    """Of forty held-out distances, some half of the end, the tail leaves no room: as odds, there is."""
    singles = drawn(40) | {"distance": np.r_[np.linspace(0.02, 0.3, 36), 0.35, 0.4, 0.5, 0.7]}
    far = {"predictive_entropy": np.zeros(3), "distance": np.array([0.9, 0.95, 0.99])}
    plain, odds = (surprise_of(singles, end) for end in (None, 1.0))
    room = [fitted.scored(far)[0].min() - fitted.scored(singles)[0].max() for fitted in (plain, odds)]
    assert room[0] < 1
    assert room[1] > 2


@pytest.mark.parametrize("end", [None, 0.5, 1.0, 1e4])
@given(st.floats(0.01, 1e3), st.floats(0.01, 1e3), st.just(0.0) | st.floats(1e-6, 1.0), st.floats(0.0, 9.0))
def test_alone_or_beside_what_counts_an_example_is_as_surprising(
    end: float | None, start: float, scale: float, shape: float, least: float
) -> None:
    """Nothing is computed where no example of a batch counts; just below and above the score that does."""
    known = ScoreDistribution(np.array([start - 1.0, start]), np.array([0.0, math.log(10)]), scale, shape)
    part = Component(SCORES["distance"], known, least, end)
    begin = known.value_at(max(least, math.log(10)))
    begin = begin if end is None else begin * max(end / (1 + begin), end / 100)
    scores = np.nextafter([begin, begin, start, start - 0.5, np.nan, np.inf, 1e30], np.inf)
    scores[0] = np.nextafter(begin, -np.inf)
    largest = LargestSurprise((part,))
    whole = largest.scored({"distance": scores})[0]
    alone = [largest.scored({"distance": scores[place : place + 1]})[0][0] for place in range(len(scores))]
    np.testing.assert_array_equal(whole, alone)
    counts = part.surprise_at(scores)
    np.testing.assert_array_equal(whole, np.where(counts < least, 0.0, counts))
