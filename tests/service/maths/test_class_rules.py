"""service/maths/class_rules.py: the false-reject rate holds within each predicted class."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.maths.class_rules import ClassRules, class_groups
from demur.service.maths.outcomes import Verdicts
from demur.service.maths.rejection import RejectionRule

Array = npt.NDArray[Any]
CLASSES = 4


def verdicts(rng: np.random.Generator, count: int, shares: Array | None = None) -> Verdicts:
    """Class k scores k + 1 times as high as class 0."""
    predicted = rng.choice(CLASSES, count, p=shares)
    scores = rng.exponential(predicted + 1.0)
    order = np.argsort(scores)
    return Verdicts(scores[order], predicted[order].astype(np.int32), np.ones(count, bool))


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.integers(1, 150), st.randoms(use_true_random=False))
def test_every_group_has_enough_examples_if_there_are_enough(counts: list[int], least: int, random: Any) -> None:
    typical = np.array([random.random() for _ in counts])
    groups = class_groups(np.array(counts), typical, least)
    sizes = np.bincount(groups, weights=counts)
    assert set(groups) == set(range(int(groups.max()) + 1))
    assert (sizes >= min(least, sum(counts))).all()
    ordered = groups[np.argsort(typical, kind="stable")]
    assert (np.diff(ordered) >= 0).all()  # neighbours by their typical score


def test_p_values_compare_within_the_group() -> None:
    held_out = verdicts(np.random.default_rng(0), 1200)
    rules = ClassRules.of(held_out, None, CLASSES, 0.1, 100)
    scores, labels = np.array([0.5, 3.0, 9.0, 1.0]), np.array([0, 1, 3, 2])
    for p, score, label, threshold, count in zip(
        rules.p_values(scores, labels), scores, labels, rules.thresholds(labels), rules.examples(labels), strict=True
    ):
        own = held_out.scores[held_out.predicted == label]
        assert p == (1 + (own >= score).sum()) / (len(own) + 1)
        assert threshold == RejectionRule(np.sort(own), 0.1).threshold
        assert count == len(own)
    rejected = scores > rules.thresholds(labels)
    np.testing.assert_array_equal(rejected, rules.p_values(scores, labels) <= 0.1)


def test_the_rate_holds_within_each_class_where_one_threshold_does_not() -> None:
    rng, within, overall = np.random.default_rng(1), list[list[float]](), list[list[float]]()
    for _ in range(200):
        held_out, new = verdicts(rng, 1000), verdicts(rng, 2000)
        rules = ClassRules.of(held_out, verdicts(rng, 1000), CLASSES, 0.05, 100)
        one = RejectionRule(held_out.scores, 0.05)
        for found, rejected in (
            (within, rules.p_values(new.scores, new.predicted) <= 0.05),
            (overall, one.rejected(new.scores)),
        ):
            found.append([rejected[new.predicted == k].mean() for k in range(CLASSES)])
    assert np.all(np.abs(np.mean(within, axis=0) - 0.05) < 0.006)
    spread = np.mean(overall, axis=0)
    assert spread[0] < 0.005
    assert spread[-1] > 0.1


def test_small_classes_share_a_group_with_those_most_like_them() -> None:
    rng = np.random.default_rng(2)
    shares = np.array([0.47, 0.03, 0.03, 0.47])
    rules = ClassRules.of(verdicts(rng, 500, shares), verdicts(rng, 500, shares), CLASSES, 0.05, 100)
    assert rules.groups[1] in (rules.groups[0], rules.groups[2])
    assert len(rules.rules) == 2
    assert rules.least_rate == max(1 / (len(rule.scores) + 1) for rule in rules.rules)
    assert rules.at(0.1).false_reject_rate == 0.1
    assert rules.at(0.1).groups is rules.groups


@pytest.mark.parametrize("least", [1, 100])
def test_with_few_examples_there_is_one_group(least: int) -> None:
    few = Verdicts(np.arange(20.0), np.zeros(20, np.int32), np.ones(20, bool))
    rules = ClassRules.of(few, None, CLASSES, 0.05, least)
    assert len(rules.rules) == 1
    np.testing.assert_array_equal(rules.thresholds(np.arange(CLASSES)), np.full(CLASSES, 19.0))
