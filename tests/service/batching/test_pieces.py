"""Merging and splitting are each other's inverse, and a bad part fails alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.batching.pieces import compute_merged, join, merge, split
from tests.support.batching import Numbers, Poison, numbers, picky


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_splitting_undoes_merging(counts: list[int]) -> None:
    inputs = [np.random.default_rng(i).normal(size=(count, 2)) for i, count in enumerate(counts)]
    for part, back in zip(inputs, split(Numbers(merge(inputs)), counts), strict=True):
        np.testing.assert_array_equal(back.values, part)


def test_one_part_is_not_copied() -> None:
    inputs = numbers(1, 2)
    assert merge([inputs]) is inputs


def test_a_result_of_the_wrong_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 rows, expected 2"):
        split(Numbers(numbers(1, 2, 3)), [1, 1])


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_a_bad_part_fails_alone(values: list[float]) -> None:
    results = compute_merged(picky, [numbers(value) for value in values])
    for value, result in zip(values, results, strict=True):
        if value < 0:
            assert isinstance(result, Poison)
        else:
            assert isinstance(result, Numbers)
            assert result.values.tolist() == [2 * value]


def test_parts_are_joined_by_their_first_row() -> None:
    parts = {2: Numbers(numbers(3)), 0: Numbers(numbers(1, 2))}
    assert join(parts).values.tolist() == [1, 2, 3]
