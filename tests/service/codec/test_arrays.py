"""service/codec/arrays.py: JSON lists become the array that was meant, or one clear error."""

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from demur.service.bundle import InputSpec
from demur.service.codec.arrays import InputError, InputTooLarge, array_from_json
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC

Array = npt.NDArray[Any]
TOKENS = InputSpec(shape=(2,), dtype="int64")
SCALARS = InputSpec(shape=())
SPECS = {"features": FEATURE_SPEC, "pictures": IMAGE_SPEC, "tokens": TOKENS, "scalars": SCALARS}
MAX_ROWS = 8

finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-5, 5)
    | st.floats()
    | st.sampled_from([10**400, -(10**400), 2**63, 2**64, 10**30])
    | st.text(max_size=3)
)
nested = st.recursive(leaves, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner))


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, MAX_ROWS), st.just(4)), elements=finite32))
def test_a_batch_comes_out_as_it_went_in(batch: Array) -> None:
    found = array_from_json(json.loads(json.dumps(batch.tolist())), FEATURE_SPEC, MAX_ROWS)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, batch)
    single = array_from_json(batch[0].tolist(), FEATURE_SPEC, MAX_ROWS)
    np.testing.assert_array_equal(single, batch[:1])


@given(hnp.arrays(np.int64, st.tuples(st.integers(1, MAX_ROWS), st.just(2))))
def test_integers_come_out_as_they_went_in(batch: Array) -> None:
    found = array_from_json(batch.tolist(), TOKENS, MAX_ROWS)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, batch)


def test_more_dimensions_and_none() -> None:
    batch = np.arange(40.0).reshape(2, 1, 4, 5)
    np.testing.assert_array_equal(array_from_json(batch.tolist(), IMAGE_SPEC, MAX_ROWS), batch)
    np.testing.assert_array_equal(array_from_json(batch[1].tolist(), IMAGE_SPEC, MAX_ROWS), batch[1:])
    np.testing.assert_array_equal(array_from_json([1, 2.5], SCALARS, MAX_ROWS), [1, 2.5])


@example("features", [True, 1.0, 2, 3])
@example("features", [10**400, 1, 2, 3])
@example("features", [10**30, 1, 2, 3])
@example("features", ["x" * 100_000, *([1] * 100_000)])
@example("features", [[1, 2, 3, 4], [1, 2, 3, 4, 5]])
@example("features", [[[[[]]]]])
@example("tokens", [2**63, 2**63])
@example("tokens", [2**63, -1])
@example("tokens", [1, 2.0])
@settings(max_examples=60)
@given(st.sampled_from(sorted(SPECS)), st.lists(nested, max_size=6))
def test_any_other_list_is_refused_or_a_sound_array(name: str, values: list[Any]) -> None:
    spec = SPECS[name]
    try:
        found = array_from_json(values, spec, MAX_ROWS)
    except InputError as error:
        described = [error.field, error.found, error.expected]
        described_well = all(described) and error.field.startswith("inputs") and len(str(error)) < 600
    else:
        described_well = True
        assert found.dtype == np.dtype(spec.dtype)
        assert found.shape[1:] == spec.shape
        assert 1 <= len(found) <= MAX_ROWS
        assert np.isfinite(found).all()
        assert_meant(found.ravel().tolist(), values)
    assert described_well


def assert_meant(found: list[float], values: Any) -> None:
    """The array holds the list's own numbers: nothing was read as a number, wrapped around or cut."""
    flat = [values]
    while any(isinstance(item, list) for item in flat):
        flat = [leaf for item in flat for leaf in (item if isinstance(item, list) else [item])]
    assert all(type(leaf) in (int, float) for leaf in flat)
    for one, meant in zip(found, flat, strict=True):
        assert math.isclose(one, meant, rel_tol=1e-6, abs_tol=1e-37), (one, meant)


REFUSED: list[tuple[str, Any, str, str]] = [
    ("features", [], "inputs", "an empty list"),
    ("features", [[]], "inputs", "shape (1, 0)"),
    ("features", [1, 2, 3], "inputs", "shape (3,)"),
    ("features", [[1, 2, 3, 4, 5]], "inputs", "shape (1, 5)"),
    ("features", [[[1, 2, 3, 4]]], "inputs", "shape (1, 1, 4)"),
    ("features", [[1, 2, 3, 4], [1, 2]], "inputs", "rows of different lengths"),
    ("features", [[1, 2, 3, 4], 5], "inputs", "rows of different lengths"),
    ("features", [[1, 2, "3", 4]], "inputs[0][2]", "'3'"),
    ("features", ["1", "2", "3", "4"], "inputs[0]", "'1'"),
    ("features", [[1, 2, None, 4]], "inputs[0][2]", "None"),
    ("features", [[1, 2, {"a": 1}, 4]], "inputs[0][2]", "{'a': 1}"),
    ("features", [[1, 2, 3, 4], [1, 2, 3, True]], "inputs[1][3]", "True"),
    ("features", [[True, True, False, False]], "inputs[0][0]", "True"),
    ("features", [[True, 0.5, 1, 2]], "inputs[0][0]", "True"),
    ("features", [[1, 2, 3, math.nan]], "inputs[0][3]", "nan"),
    ("features", [[1, 2, math.inf, 3]], "inputs[0][2]", "inf"),
    ("features", [[1, 2, 3, 4], [1e39, 2, 3, 4]], "inputs[1][0]", ""),
    ("features", [[1, 2, 3, 10**400]], "inputs[0][3]", "1000"),
    ("features", [[1, 2, 3, 10**39]], "inputs[0][3]", ""),
    ("tokens", [[1, 2.5]], "inputs[0][1]", "2.5"),
    ("tokens", [[1, 2.0]], "inputs[0][1]", "2.0"),
    ("tokens", [[1, True]], "inputs[0][1]", "True"),
    ("tokens", [[1, 2**63]], "inputs[0][1]", "9223372036854775808"),
    ("tokens", [[2**63, 2**63]], "inputs[0][0]", "9223372036854775808"),
    ("tokens", [[1, -(2**64)]], "inputs[0][1]", "-18446744073709551616"),
]


@pytest.mark.parametrize(("name", "values", "field", "found"), REFUSED, ids=lambda item: str(item)[:45])
def test_a_refusal_names_the_place_and_the_value(name: str, values: Any, field: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        array_from_json(values, SPECS[name], MAX_ROWS)
    assert not isinstance(caught.value, InputTooLarge)
    assert caught.value.field == field
    assert found in caught.value.found
    assert str(caught.value) == f"{field}: found {caught.value.found}, expected {caught.value.expected}"


def test_a_large_whole_number_is_the_number_it_is() -> None:
    """JSON knows one kind of number: 1e30 may be written out."""
    found = array_from_json([10**30, 2**64, -(2**70), 1], FEATURE_SPEC, MAX_ROWS)
    np.testing.assert_array_equal(found, np.array([[1e30, 2.0**64, -(2.0**70), 1]], np.float32))


def test_one_long_text_among_many_numbers_is_refused_cheaply() -> None:
    """NumPy would make every entry as long as the longest text: 40 GB here."""
    with pytest.raises(InputError) as caught:
        array_from_json([1] * 100_000 + ["x" * 100_000], FEATURE_SPEC, MAX_ROWS)
    assert caught.value.field == "inputs[100000]"
    assert len(str(caught.value)) < 300


def test_the_number_of_rows_is_bounded() -> None:
    rows = [[1, 2, 3, 4]] * (MAX_ROWS + 1)
    assert len(array_from_json(rows[:-1], FEATURE_SPEC, MAX_ROWS)) == MAX_ROWS
    with pytest.raises(InputTooLarge, match="inputs: found 9 examples, expected at most 8 in one request"):
        array_from_json(rows, FEATURE_SPEC, MAX_ROWS)


def test_deep_lists_are_refused() -> None:
    for depth in (10, 64, 65, 150):
        values: Any = 1
        for _ in range(depth):
            values = [values]
        with pytest.raises(InputError):
            array_from_json(values, FEATURE_SPEC, MAX_ROWS)


# --------------------------------------------------------------------------- objects

NAMES = FEATURE_SPEC.feature_names or ()


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, MAX_ROWS), st.just(4)), elements=finite32), st.permutations(NAMES)
)
def test_objects_are_ordered_by_name(batch: Array, order: list[str]) -> None:
    objects = [{name: float(row[NAMES.index(name)]) for name in order} | {"patient": "x"} for row in batch]
    np.testing.assert_array_equal(array_from_json(objects, FEATURE_SPEC, MAX_ROWS), batch)


@given(st.lists(st.sampled_from(["{}", " {}", "{}\t", "\u00a0{}"]), min_size=4, max_size=4))
def test_white_space_around_the_names_of_fields_does_not_count(forms: list[str]) -> None:
    named = {form.format(name): place for place, (form, name) in enumerate(zip(forms, NAMES, strict=True))}
    assert array_from_json([named], FEATURE_SPEC, MAX_ROWS).tolist() == [[0, 1, 2, 3]]
    also = {f"  {name}": 9 for name in named if name in NAMES}  # the very name comes first
    assert array_from_json([also | named], FEATURE_SPEC, MAX_ROWS).tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("objects", "spec", "field", "words"),
    [
        ([{"a": 1, "b": 2, "c": 3}], FEATURE_SPEC, "inputs[0].d", "found nothing, expected a number"),
        ([{"A": 1, "b": 2, "c": 3, "d": 4}], FEATURE_SPEC, "inputs[0].a", "found nothing (did you mean 'A'?)"),
        ([{" a": 1, "a ": 1, "b": 2, "c": 3, "d": 4}], FEATURE_SPEC, "inputs[0].a", "found nothing (did you mean"),
        ([{"a": 1, "b": 2, "c": 3, "d ": "x"}], FEATURE_SPEC, "inputs[0].d", "found 'x', expected a number"),
        ([{"a": 1, "b": 2, "c": 3, "d": "x"}], FEATURE_SPEC, "inputs[0].d", "found 'x', expected a number"),
        ([{"a": 1, "b": None, "c": 3, "d": 4}], FEATURE_SPEC, "inputs[0].b", "found None, expected a number"),
        ([{"a": 1, "b": 2, "c": 3, "d": 1e39}], FEATURE_SPEC, "inputs[0].d", "expected a finite number"),
        ([{"a": 1, "b": 2, "c": 3, "d": 10**400}], FEATURE_SPEC, "inputs[0].d", "a number that fits 64 bits"),
        ([dict.fromkeys(NAMES, 1), [1, 2, 3, 4]], FEATURE_SPEC, "inputs[1]", "expected an object, as before it"),
        ([[1, 2, 3, 4], dict.fromkeys(NAMES, 1)], FEATURE_SPEC, "inputs[1]", "expected a number"),
        ([dict.fromkeys(NAMES, 1)], TOKENS, "inputs[0]", "expected a list of numbers: the model has no feature names"),
        ([dict.fromkeys(NAMES, 1)] * 9, FEATURE_SPEC, "inputs", "found 9 examples, expected at most 8"),
    ],
)
def test_objects_that_are_refused(objects: Any, spec: InputSpec, field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        array_from_json(objects, spec, MAX_ROWS)
    assert caught.value.field == field
    assert words in str(caught.value)
