"""service/inference/frames.py and what takes frames: columns by name, whatever their order."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from demur.service.inference.frames import frame_array, frame_columns, is_frame, numbers_of, places_by_name
from demur.service.inference.predictor import Prediction, Predictor
from tests.support.bundles import FEATURE_SPEC, Synthetic

ROWS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
FRAME = pd.DataFrame(ROWS, columns=list("abcd"))


def test_what_is_a_frame() -> None:
    assert is_frame(FRAME)
    assert not is_frame(ROWS)
    assert not is_frame(FRAME["a"])
    assert frame_columns(FRAME, "x") == ("a", "b", "c", "d")
    assert frame_columns(pd.DataFrame(ROWS), "x") is None
    for names in (["a", 1, 2, 3], [2, 0, 1, 3], pd.MultiIndex.from_product([["a", "b"], ["c", "d"]])):
        with pytest.raises(ValueError, match=r"x: found columns called .*, expected text, or 0, 1, \.\.\. in order"):
            frame_columns(pd.DataFrame(ROWS, columns=names), "x")


@pytest.mark.parametrize("order", ["abcd", "dcba", "xbacd"])
def test_columns_in_another_order_are_the_same(classification: Synthetic, order: str) -> None:
    assert FEATURE_SPEC.feature_names == tuple("abcd")
    predictor = Predictor.load(classification.path)
    expected = predictor.predict(ROWS)
    frame = FRAME.assign(x="words")[list(order)]
    np.testing.assert_array_equal(predictor.predict(frame).mean, expected.mean)


def test_a_frame_without_names_is_an_array(classification: Synthetic, regression: Synthetic) -> None:
    predictor = Predictor.load(classification.path)
    np.testing.assert_array_equal(predictor.predict(pd.DataFrame(ROWS)).mean, predictor.predict(ROWS).mean)
    unnamed = Predictor.load(regression.path)
    with pytest.raises(ValueError, match=r"found columns with names, expected an array: .* frame\.to_numpy\(\)"):
        unnamed.predict(FRAME[["a", "b", "c"]])


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME[["a", "b"]], "inputs: found no column 'c', 'd', expected one of each name that the model"),
        (FRAME.rename(columns=str.upper), r"found no column 'a' \(did you mean 'A'\?\), 'b'"),
        (pd.concat([FRAME, FRAME[["b"]]], axis=1), "inputs: found several columns 'b'"),
        (FRAME.assign(c=["x"] * 6), "inputs, column 'c', row 0: found 'x', expected a number"),
        (FRAME.assign(c=[1, 2, None, "y", 3, 4]), "inputs, column 'c', row 2: found None"),
        (
            FRAME.assign(c=pd.array([1, None, 3, 4, 5, 6], "Int64")),
            "inputs, column 'c', row 1: found nan, expected a finite",
        ),
        (FRAME.assign(c=np.inf), "inputs, column 'c', row 0: found inf, expected a finite number"),
        (FRAME.rename(columns={"c": "a1"}), "found no column 'c', expected"),
        (FRAME.assign(c=pd.Timestamp("2024-01-01")), "inputs, column 'c', row 0: found"),
    ],
)
def test_frames_that_are_refused(frame: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        frame_array(frame, FEATURE_SPEC.feature_names, "inputs")


@pytest.mark.parametrize(("fitted", "given"), [(" age", "age"), ("age", "age "), ("caf\u00e9", "cafe\u0301")])
def test_white_space_and_forms_of_letters_do_not_count(fitted: str, given: str) -> None:
    frame = pd.DataFrame({given: [1.0], "b": [2.0]})
    assert frame_array(frame, ["b", fitted], "inputs").tolist() == [[2.0, 1.0]]
    assert places_by_name([given, fitted], [fitted], "inputs") == [1]  # the very name comes first
    with pytest.raises(ValueError, match="found several columns"):
        places_by_name([f"{given} ", f"  {given}"], [fitted], "inputs")


def test_a_column_stands_for_one_name_alone() -> None:
    with pytest.raises(ValueError, match="found no column ' age'"):
        places_by_name(["age", "b"], ["age", " age"], "inputs")


def test_only_some_of_many_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match="'a0', 'a1', 'a2', 'a3', 'a4', and 95 more, expected"):
        places_by_name(["b"], [f"a{k}" for k in range(100)], "inputs")


def test_an_empty_column_has_no_number_and_no_error() -> None:
    assert numbers_of(pd.Series([], dtype=object), "x").shape == (0,)


@pytest.mark.parametrize(
    "column", [[True, False], pd.array([1, 2], "Int64"), pd.array([1.5, 2], "Float64"), np.array([1, 2.5], object)]
)
def test_numbers_of_every_type(column: Any) -> None:
    np.testing.assert_array_equal(numbers_of(pd.Series(column), "x"), [float(value) for value in column])


def test_predictions_have_labels_and_a_frame(classification: Synthetic, regression: Synthetic) -> None:
    found = Predictor.load(classification.path).predict(ROWS)
    names = Predictor.load(classification.path).manifest.class_names
    assert names is not None
    assert found.probabilities is not None
    assert found.labels is not None
    assert found.labels.tolist() == [names[k] for k in found.probabilities.argmax(axis=1)]
    frame = found.to_frame(index=FRAME.index + 10)
    with pytest.raises(ValueError, match="index: found 2 labels, expected one for each of the 6 predictions"):
        found.to_frame(FRAME.index[:2])
    each = [f"probability_{name}" for name in names]
    assert frame.columns.tolist() == ["label", "probability", *each, "score", "p_value", "rejected"]
    assert frame.index.tolist() == list(range(10, 16))
    np.testing.assert_array_equal(frame[each].to_numpy(), found.probabilities)
    assert Prediction.concatenate([found.rows(0, 2), found.rows(2, 6)]).to_frame(FRAME.index + 10).equals(frame)

    values = Predictor.load(regression.path).predict(ROWS[:, :3])
    assert values.labels is None
    table = values.to_frame()
    assert table.columns[:2].tolist() == ["mean_0", "mean_1"]
    np.testing.assert_array_equal(table["std_1"], values.std[:, 1])  # type: ignore[index]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.bfloat16(),
        lambda x: x.to_sparse(),
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
        lambda x: torch.nested.nested_tensor([x[0], x[0, :1]]),
    ],
    ids=["bfloat16", "sparse", "quantised", "nested"],
)
@pytest.mark.filterwarnings("ignore")  # of torch: such tensors are no longer made, or not yet
def test_a_tensor_that_is_no_array_is_told_so(make: Any) -> None:
    with pytest.raises(ValueError, match=r"^inputs: found a Tensor that is no array .*, expected dense float32"):
        numbers_of(make(torch.ones(2, 3)), "inputs")


def test_tensors_that_are_arrays_are_taken() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    for tensor in (x, x.detach()[:, ::2], torch.view_as_complex(torch.ones(3, 2)).conj().imag):
        assert numbers_of(tensor, "inputs").shape == tuple(tensor.shape)


def test_a_table_that_would_be_taken_by_position_is_refused(classification: Synthetic) -> None:
    table = pa.Table.from_pandas(FRAME[list("dcba")])
    with pytest.raises(ValueError, match=r"found a Table, expected an array or a data frame, such as of its to_pandas"):
        Predictor.load(classification.path).predict(table)
