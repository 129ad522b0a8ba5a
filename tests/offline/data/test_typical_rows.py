"""Candidates for usual rows: of enough examples each, possible ones, and only where the page has a form."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from demur.offline.data.held_out import HeldOut
from demur.offline.data.typical_rows import LEAST_ALIKE, LEAST_GROUP, MOST_FEATURES, MOST_ROWS, typical_rows
from demur.service.bundle import InputSpec


def held_out(x: np.ndarray, targets: np.ndarray | None = None) -> HeldOut:
    y = np.zeros((len(x), 1), np.float32) if targets is None else targets
    return HeldOut(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y))


def rows_of(x: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
    return np.array(typical_rows(InputSpec(shape=x.shape[1:]), held_out(x, targets))).reshape(-1, *x.shape[1:])


def test_groups_are_found() -> None:
    draw = np.random.default_rng(0)
    centres, sizes = np.array([[0.0, 0.0], [100.0, 1.0], [0.0, 2.0]]), (60, 30, 40)
    x = np.concatenate([c + 0.01 * draw.normal(size=(n, 2)) for c, n in zip(centres, sizes, strict=True)])
    found = rows_of(draw.permutation(x))
    assert len(found) <= MOST_ROWS
    nearest = np.abs(found[:, np.newaxis] - centres).max(axis=2).argmin(axis=1)
    np.testing.assert_allclose(found, centres[nearest], atol=0.05)
    assert set(nearest) == {0, 1, 2}


def test_each_class_has_one() -> None:
    draw = np.random.default_rng(3)
    classes = np.repeat([5, 0, 7, 2], [11, 12, 12, 4])  # too few of class 2
    found = rows_of(classes[:, np.newaxis] + 0.1 * draw.normal(size=(39, 2)), classes)
    np.testing.assert_allclose(found[:3], [[0, 0], [7, 7], [5, 5]], atol=0.2)
    assert not np.isclose(found, 2, atol=0.5).any()


def test_columns_that_exclude_each_other_stay_together() -> None:
    draw = np.random.default_rng(1)
    site = np.eye(3)[draw.integers(0, 3, 300)]
    x = np.concatenate([draw.normal(size=(300, 2)), site, draw.choice([10.0, 20.0, 70.0], (300, 1))], axis=1)
    found = rows_of(x)
    assert len(found) > 2
    assert (found[:, 2:5].sum(axis=1) == 1).all()
    assert set(found[:, 2:5].ravel()) == {0, 1}
    assert set(found[:, 5]) <= {10, 20, 70}


def test_combinations_that_few_share_are_left_out() -> None:
    draw = np.random.default_rng(2)
    x = np.concatenate([draw.normal(size=(60, 1)), draw.integers(0, 2, (60, 12))], axis=1)
    assert not len(rows_of(x))


@settings(max_examples=30, deadline=None)
@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 80), st.integers(2, 4)), elements=st.floats(-1e6, 1e6, width=32))
)
def test_enough_examples_lie_on_either_side_of_a_value(x: np.ndarray) -> None:
    found = rows_of(x)
    assert len(found) <= len(x) // (2 * LEAST_GROUP)
    for row in found:
        tolerance = 1e-5 * np.abs(x) + 1e-30
        assert ((x <= row + tolerance).sum(axis=0) >= LEAST_ALIKE / 2).all()
        assert ((x >= row - tolerance).sum(axis=0) >= LEAST_ALIKE / 2).all()


@pytest.mark.parametrize(
    ("spec", "x"),
    [
        (InputSpec(shape=(3,)), np.zeros((LEAST_GROUP - 1, 3))),
        (InputSpec(shape=(1,)), np.zeros((100, 1))),
        (InputSpec(shape=(MOST_FEATURES + 1,)), np.zeros((100, MOST_FEATURES + 1))),
        (InputSpec(shape=(2, 2)), np.zeros((100, 2, 2))),
        (InputSpec(shape=(3,), dtype="int64"), np.zeros((100, 3))),
        (InputSpec(shape=(2,)), np.full((100, 2), np.nan)),
        (InputSpec(shape=(2,), typical=((1.0, 2.0),)), np.zeros((100, 2))),
    ],
)
def test_others_have_none(spec: InputSpec, x: np.ndarray) -> None:
    assert typical_rows(spec, held_out(x)) == ()


def test_equal_rows_are_one() -> None:
    assert rows_of(np.ones((100, 2))).tolist() == [[1, 1]]
