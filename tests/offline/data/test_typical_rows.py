"""Typical rows: usual ones, made of at least ten examples each, and only where the page has a form."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from probity.offline.data.typical_rows import LEAST_GROUP, MOST_FEATURES, MOST_ROWS, with_typical_rows
from probity.service.bundle import InputSpec


def rows_of(x: np.ndarray, spec: InputSpec | None = None) -> np.ndarray:
    found = with_typical_rows(spec or InputSpec(shape=x.shape[1:]), torch.as_tensor(x, dtype=torch.float32)).typical
    return np.array(found or np.empty((0, *x.shape[1:])))


def test_groups_are_found_the_largest_first() -> None:
    draw = np.random.default_rng(0)
    centres, sizes = np.array([[0.0, 0.0], [100.0, 1.0], [0.0, 2.0]]), (60, 30, 40)
    x = np.concatenate([c + 0.01 * draw.normal(size=(n, 2)) for c, n in zip(centres, sizes, strict=True)])
    found = rows_of(draw.permutation(x))
    assert len(found) <= MOST_ROWS
    nearest = np.abs(found[:, np.newaxis] - centres).max(axis=2).argmin(axis=1)
    np.testing.assert_allclose(found, centres[nearest], atol=0.05)
    assert set(nearest) == {0, 1, 2}


def test_codes_stay_codes() -> None:
    draw = np.random.default_rng(1)
    x = np.stack([draw.integers(0, 2, 200), draw.normal(size=200), draw.choice([10.0, 20.0, 70.0], 200)], axis=1)
    found = rows_of(x)
    assert len(found) == MOST_ROWS
    assert set(found[:, 0]) <= {0, 1}
    assert set(found[:, 2]) <= {10, 20, 70}


@settings(max_examples=30, deadline=None)
@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 80), st.integers(2, 4)), elements=st.floats(-1e6, 1e6, width=32))
)
def test_no_value_is_that_of_fewer_than_half_a_group(x: np.ndarray) -> None:
    found = rows_of(x)
    assert len(found) <= len(x) // (2 * LEAST_GROUP)
    for row in found:
        tolerance = 1e-5 * np.abs(x) + 1e-30
        assert ((x <= row + tolerance).sum(axis=0) >= LEAST_GROUP / 2).all()
        assert ((x >= row - tolerance).sum(axis=0) >= LEAST_GROUP / 2).all()


@pytest.mark.parametrize(
    ("spec", "x"),
    [
        (InputSpec(shape=(3,)), np.zeros((LEAST_GROUP, 3))),
        (InputSpec(shape=(1,)), np.zeros((100, 1))),
        (InputSpec(shape=(MOST_FEATURES + 1,)), np.zeros((100, MOST_FEATURES + 1))),
        (InputSpec(shape=(2, 2)), np.zeros((100, 2, 2))),
        (InputSpec(shape=(3,), dtype="int64"), np.zeros((100, 3))),
    ],
)
def test_others_have_none(spec: InputSpec, x: np.ndarray) -> None:
    assert with_typical_rows(spec, torch.as_tensor(x)) == spec


def test_given_ones_stay() -> None:
    spec = dataclasses.replace(InputSpec(shape=(2,)), typical=((1.0, 2.0),))
    assert with_typical_rows(spec, torch.randn(100, 2, generator=torch.Generator().manual_seed(0))) == spec


def test_equal_rows_are_one() -> None:
    assert rows_of(np.ones((100, 2))).tolist() == [[1, 1]]
