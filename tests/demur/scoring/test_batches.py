"""demur/scoring/batches.py: the columns of `demur score` for the batches of an engine."""

import io
import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from demur import BatchScorer, Policy
from demur.scoring.job import score_file
from demur.service.bundle import BundleError, InputPart, InputSpec
from demur.service.inference.predictor import NonFinitePrediction, Predictor
from tests.support.bundles import TEXT_SPEC, tokenizer_json, write_linear
from tests.support.places import running
from tests.support.signing import KEY, pem

SHAPE = 2, 3, 4
SHAPE_TEXT = re.escape(str(SHAPE))
BLOCKS = np.random.default_rng(7).normal(size=(6, *SHAPE)).astype(np.float32)
INPUTS = np.random.default_rng(5).normal(size=(30, 4)).astype(np.float32)


def of_file(predictor: Predictor, inputs: np.ndarray, folder: Path) -> pd.DataFrame:
    np.save(folder / "inputs.npy", inputs)
    score_file(predictor, folder / "inputs.npy", folder / "rows.parquet", batch_size=256)
    return parquet.read_table(folder / "rows.parquet").to_pandas().drop(columns="row")


def same(found: dict[str, np.ndarray], expected: pd.DataFrame) -> None:
    assert list(found) == list(expected.columns)
    for name, column in found.items():
        values = [list(cell) if isinstance(cell, np.ndarray) else cell for cell in expected[name]]
        assert column.tolist() == values, name


@pytest.mark.parametrize(("kind", "width"), [("table", 4), ("values", 3)])
def test_a_batch_gets_the_columns_of_score(
    kind: str, width: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    predictor: Predictor = request.getfixturevalue(kind)
    inputs = INPUTS[:, :width].copy()
    same(BatchScorer(predictor.path)({"inputs": inputs}), of_file(predictor, inputs, tmp_path))


@pytest.mark.parametrize("make", [dict, pd.DataFrame])
def test_columns_are_found_by_feature_names(make: Any, table: Predictor, tmp_path: Path) -> None:
    names = table.manifest.input.feature_names
    assert names is not None
    batch = make({"id": np.arange(30)} | {name: INPUTS[:, place] for place, name in reversed([*enumerate(names)])})
    found = BatchScorer(table.path, keep=["id"])(batch)
    assert found.pop("id").tolist() == list(range(30))
    same(found, of_file(table, INPUTS, tmp_path))


def test_a_feature_may_have_the_name_of_the_column_of_the_examples(tmp_path: Path) -> None:
    spec = InputSpec((3,), "float32", feature_names=("dose", "inputs", "age"))
    path = write_linear(tmp_path / "bundle", outputs=3, spec=spec).path
    batch = {name: INPUTS[:, place] for place, name in enumerate(("dose", "inputs", "age"))}
    same(BatchScorer(path)(batch), of_file(Predictor.load(path), INPUTS[:, :3].copy(), tmp_path))
    del batch["age"]
    with pytest.raises(ValueError, match=r"found shape \(30,\)"):
        BatchScorer(path)(batch)


@pytest.mark.parametrize("make", [pd.DataFrame, lambda columns: {"inputs": np.array(columns["inputs"], object)}])
def test_a_missing_text_is_no_text(make: Any, tmp_path: Path) -> None:
    path = write_linear(tmp_path / "bundle", outputs=3, spec=TEXT_SPEC, tokenizer=tokenizer_json()).path
    for texts in ([None, "a"], ["a", None], [float("nan"), "a"]):
        with pytest.raises(ValueError, match="expected a text"):
            BatchScorer(path)(make({"inputs": texts}))


def test_a_bundle_must_be_signed_where_the_environment_says_by_whom(
    table: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys.pub"
    keys.write_text(pem(KEY))
    monkeypatch.setenv("DEMUR_TRUSTED_KEYS", str(keys))
    with pytest.raises(BundleError, match="signature"):
        BatchScorer(table.path)({"inputs": INPUTS})


def test_arguments_that_are_refused(table: Predictor) -> None:
    with pytest.raises(ValueError, match="batch_size: found -1, expected at least 1"):
        BatchScorer(table.path, batch_size=-1)
    both = BatchScorer(table.path, keep=["label", "input_label"])
    with pytest.raises(ValueError, match="keep: found 'label', 'input_label', of which two would have one name"):
        both({"inputs": INPUTS, "label": np.zeros(30), "input_label": np.zeros(30)})


def test_examples_may_stand_one_by_one(table: Predictor, tmp_path: Path) -> None:
    frame = pd.DataFrame({"image": list(INPUTS), "id": range(30)})
    same(BatchScorer(table.path, inputs="image")(frame), of_file(table, INPUTS, tmp_path))


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of which an example has SHAPE."""
    return write_linear(tmp_path_factory.mktemp("blocks") / "bundle", outputs=3, spec=InputSpec(SHAPE)).path


def arrow(array: np.ndarray, kind: Any = pa.list_) -> pa.Table:
    """A table with the examples as lists in each other."""
    nested = pa.float32()
    for length in reversed(array.shape[1:]):
        nested = pa.list_(nested, length) if kind is None else kind(nested)
    return pa.table({"inputs": pa.array(array.tolist(), nested)})


def from_parquet(table: pa.Table, **options: Any) -> pd.DataFrame:
    file = io.BytesIO()
    parquet.write_table(table, file)
    return pd.read_parquet(file, **options)


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "an array": lambda array: {"inputs": array},
    "lists": lambda array: {"inputs": array.tolist()},
    "a list of arrays": lambda array: {"inputs": list(array)},
    "a frame of lists": lambda array: pd.DataFrame({"inputs": array.tolist()}),
    "a frame of arrays": lambda array: pd.DataFrame({"inputs": list(array)}),
    "parquet": lambda array: from_parquet(arrow(array)),
    "parquet, of lists of one length": lambda array: from_parquet(arrow(array, None)),
    "parquet, in Arrow's types": lambda array: from_parquet(arrow(array), dtype_backend="pyarrow"),
    "long lists of Arrow": lambda array: arrow(array, pa.large_list).to_pandas(),
    "Arrow's types": lambda array: arrow(array).to_pandas(types_mapper=pd.ArrowDtype),
    "an Arrow table": arrow,
    "a record batch": lambda array: arrow(array).to_batches()[0],
    "an Arrow array": lambda array: {"inputs": arrow(array)["inputs"].combine_chunks()},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_nested_lists_gives_the_same(form: str, blocks: Path) -> None:
    found, expected = (BatchScorer(blocks)(FORMS[name](BLOCKS)) for name in (form, "an array"))
    assert found.keys() == expected.keys()
    for name, column in found.items():
        np.testing.assert_array_equal(column, expected[name])


def as_objects(parts: list[Any]) -> np.ndarray:
    found = np.empty(len(parts), object)
    for place, part in enumerate(parts):
        found[place] = part
    return found


KINDS: list[Callable[[list[Any]], Any]] = [list, tuple, as_objects]


@st.composite
def nested(draw: st.DrawFn, array: np.ndarray) -> Any:
    """The array, at each depth a list, a tuple, an array of objects, or an array."""
    kind = draw(st.sampled_from([*KINDS, None] if array.ndim else [None]))
    return array if kind is None else kind([draw(nested(part)) for part in array])


@given(st.data())
@settings(max_examples=50)
def test_lists_and_arrays_may_stand_in_each_other(blocks: Path, data: st.DataObject) -> None:
    column = data.draw(st.sampled_from(KINDS))([data.draw(nested(example)) for example in BLOCKS])
    found, expected = (BatchScorer(blocks)({"inputs": inputs}) for inputs in (column, BLOCKS))
    np.testing.assert_array_equal(found["score"], expected["score"])


@given(st.data())
@settings(max_examples=50)
def test_an_uneven_example_is_named(blocks: Path, data: st.DataObject) -> None:
    """One list of one example has an entry less: its shape up to there, or its whole shape, differs."""
    row, depth = data.draw(st.integers(0, len(BLOCKS) - 1)), data.draw(st.integers(0, len(SHAPE) - 1))
    rows = BLOCKS.tolist()
    shorter = rows[row]
    for length in SHAPE[:depth]:
        shorter = shorter[data.draw(st.integers(0, length - 1))]
    del shorter[-1]
    column = pd.Series(rows)
    if data.draw(st.booleans()):
        column = pa.table({"inputs": rows})["inputs"].to_pandas()
    with pytest.raises(ValueError, match=rf"column 'inputs', row {row}: found shape .*, expected shape {SHAPE_TEXT}"):
        BatchScorer(blocks)(pd.DataFrame({"inputs": column}))


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        (BLOCKS[0][:1].tolist(), rf"found shape \(1, 3, 4\), expected shape {SHAPE_TEXT}"),
        (BLOCKS[0].ravel(), rf"found shape \(24,\), expected shape {SHAPE_TEXT}"),
        (
            [[[1.0] * 4] * 3, [[1.0] * 4] * 2],
            r"found shape \(2,\), then lists of different lengths, expected shape",
        ),
        ([[[1.0] * 4] * 3, [[1.0] * 4, [1.0] * 4, [1.0, 1.0, 1.0, None]]], "found None, expected a number"),
        ([[["a"] * 4] * 3] * 2, "found 'a', expected a number"),
        ([], r"found shape \(0,\)"),
        (None, "found None, expected shape"),
        (float("nan"), "found nan, expected shape"),
        ("abc", "found 'abc', expected shape"),
        ({"bytes": b""}, r"found \{'bytes': b''\}, expected shape"),
    ],
)
def test_a_cell_that_is_no_example_is_named(cell: Any, problem: str, blocks: Path) -> None:
    with pytest.raises(ValueError, match=f"column 'inputs', row 1: {problem}"):
        BatchScorer(blocks)({"inputs": as_objects([BLOCKS[0], cell])})


@pytest.mark.parametrize("form", [" {}", "{} ", "\u00a0{}\t"])
@pytest.mark.parametrize("make", [dict, pd.DataFrame])
def test_white_space_around_names_does_not_count(form: str, make: Any, table: Predictor, tmp_path: Path) -> None:
    names = table.manifest.input.feature_names or ()
    columns = {form.format(name): INPUTS[:, place] for place, name in enumerate(names)} | {form.format("id"): range(30)}
    expected = of_file(table, INPUTS, tmp_path)
    found = BatchScorer(table.path, keep=["id"])(make(columns))
    assert list(found.pop("id")) == list(range(30))
    same(found, expected)
    image = make({form.format("image"): list(INPUTS), form.format("IMAGE"): range(30)})
    same(BatchScorer(table.path, inputs="image ")(image), expected)
    twice = {form.format("image"): list(INPUTS), f"  {form}".format("image"): list(INPUTS)}
    with pytest.raises(ValueError, match="inputs: found several columns 'image'"):
        BatchScorer(table.path, inputs="image")(make(twice))
    with pytest.raises(ValueError, match="keep: found several columns 'image'"):
        BatchScorer(table.path, keep=["image"])(make(columns | twice))


def test_letters_are_compared_in_composed_form_and_parts_by_the_same_rule(tmp_path: Path) -> None:
    parts = InputPart("caf\u00e9", (2,)), InputPart("age", ())
    path = write_linear(tmp_path / "bundle", outputs=2, spec=InputSpec(shape=(3,), parts=parts)).path
    given = {"caf\u00e9": INPUTS[:, :2], "age": INPUTS[:, 2]}
    frame = pd.DataFrame({" age": given["age"], "cafe\u0301": list(given["caf\u00e9"])})
    found, expected = (BatchScorer(path)(batch) for batch in (frame, given))
    np.testing.assert_array_equal(found["score"], expected["score"])


def test_a_feature_that_is_no_number_is_named(table: Predictor) -> None:
    names = table.manifest.input.feature_names or ()
    frame = pd.DataFrame(INPUTS, columns=list(names)).astype({names[1]: object})
    frame.loc[3, names[1]] = "high"
    with pytest.raises(ValueError, match=f"column '{names[1]}', row 3: found 'high', expected"):
        BatchScorer(table.path)(frame)


def test_kept_lists_of_different_lengths_stay(table: Predictor) -> None:
    tags = [["a"], ["b", "c"], *[[]] * 28]
    found = BatchScorer(table.path, keep=["tags"])({"inputs": INPUTS, "tags": tags})
    assert found["tags"].tolist() == tags


def test_a_long_batch_is_predicted_in_pieces(table: Predictor) -> None:
    whole, pieces = (BatchScorer(table.path, batch_size=size)({"inputs": INPUTS}) for size in (256, 7))
    np.testing.assert_allclose(pieces["score"], whole["score"], rtol=1e-5)
    assert pieces["label"].tolist() == whole["label"].tolist()


def test_a_kept_column_makes_way_for_a_prediction_of_its_name(table: Predictor) -> None:
    found = BatchScorer(table.path, keep=["label"])({"inputs": INPUTS, "label": np.array(["mine"] * 30)})
    assert found["input_label"].tolist() == ["mine"] * 30
    assert set(found["label"]) <= set(table.manifest.labels)


def test_a_policy_is_that_of_a_service(table: Predictor) -> None:
    strict = BatchScorer(table.path, policy=Policy(false_reject_rate=0.5))({"inputs": INPUTS})
    usual = BatchScorer(table.path)({"inputs": INPUTS})
    assert strict["rejected"].sum() > usual["rejected"].sum()


@pytest.mark.parametrize("batch", [{"inputs": INPUTS[:0]}, pd.DataFrame({"inputs": []})])
def test_an_empty_part_has_the_same_columns(batch: Any, table: Predictor) -> None:
    full, empty = BatchScorer(table.path)({"inputs": INPUTS}), BatchScorer(table.path)(batch)
    assert {name: len(column) for name, column in empty.items()} == dict.fromkeys(full, 0)


def test_whole_numbers_of_arrow_stay_whole_where_some_are_missing(table: Predictor) -> None:
    numbers = [2**60 + 1, None, 5]
    columns = {name: INPUTS[:3, place] for place, name in enumerate("abcd")}
    found = BatchScorer(table.path, keep=["id"])(pa.table(columns | {"id": pa.array(numbers, pa.int64())}))
    assert found["id"].tolist() == numbers


def test_several_inputs_are_columns(tmp_path: Path) -> None:
    parts = InputPart("pixels", (2, 2)), InputPart("age", ())
    predictor = Predictor.load(
        write_linear(tmp_path / "bundle", outputs=2, spec=InputSpec(shape=(5,), parts=parts)).path, threads=1
    )
    given = {"age": INPUTS[:, 0], "pixels": INPUTS.reshape(-1, 2, 2)}
    frame = pd.DataFrame({"age": given["age"], "pixels": [list(map(list, one)) for one in given["pixels"]]})
    expected = predictor.predict(given).score.astype(np.float64)
    for batch in (given, frame):
        np.testing.assert_array_equal(BatchScorer(predictor.path)(batch)["score"], expected)


def test_texts_are_a_column(tmp_path: Path) -> None:
    bundle = write_linear(tmp_path / "texts", outputs=2, spec=TEXT_SPEC, tokenizer=tokenizer_json()).path
    found = BatchScorer(bundle, inputs="text")({"text": np.array(["a b", "b"], object)})
    expected = Predictor.load(bundle, threads=1).predict(["a b", "b"])
    np.testing.assert_array_equal(found["score"], expected.score.astype(np.float64))


def test_a_pickle_holds_the_name_alone(table: Predictor) -> None:
    scorer = BatchScorer(table.path)
    before = scorer({"inputs": INPUTS})
    data = pickle.dumps(scorer)
    assert len(data) < 1000
    after = pickle.loads(data)({"inputs": INPUTS})
    assert {name: column.tolist() for name, column in after.items()} == {
        name: column.tolist() for name, column in before.items()
    }


def test_spark_maps_frames_in_an_iterator(table: Predictor) -> None:
    """As `mapInPandas` calls it."""
    scorer = BatchScorer(table.path, keep=["id"])

    def scored(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame(scorer(frame))

    names = list(table.manifest.input.feature_names or ())
    frame = pd.DataFrame(INPUTS, columns=names).assign(id=range(30))
    found = pd.concat(scored(iter([frame[:11], frame[11:]])))
    assert found["id"].tolist() == list(range(30))
    pa.Table.from_pandas(found)  # Arrow takes every column


def test_a_uri_is_fetched_where_it_is_used(table: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMUR_CACHE_DIR", str(tmp_path / "cache"))
    with running("hf", tmp_path) as hub:
        for name, value in hub.environment.items():
            monkeypatch.setenv(name, value)
        table.push_to_hub("acme/digits")
        found = pickle.loads(pickle.dumps(BatchScorer("acme/digits")))({"inputs": INPUTS})
    assert found["label"].tolist() == BatchScorer(table.path)({"inputs": INPUTS})["label"].tolist()


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ({"picture": INPUTS}, "found the columns 'picture', expected 'inputs', or '"),
        ({"inputs": INPUTS[:, :3]}, r"found shape \(30, 3\)"),
        ({"inputs": np.array(["a"] * 3)}, "found texts"),
    ],
)
def test_what_is_refused(batch: dict[str, np.ndarray], problem: str, table: Predictor) -> None:
    with pytest.raises(ValueError, match=problem):
        BatchScorer(table.path)(batch)


def test_columns_of_different_lengths_are_told(table: Predictor) -> None:
    with pytest.raises(ValueError, match=r"found columns of {'a': 2, 'b': 1, .* rows, expected as many in each"):
        BatchScorer(table.path)({"a": [1.0, 2.0], "b": [1.0], "c": [1.0], "d": [1.0]})


def test_masked_entries_are_refused(table: Predictor) -> None:
    masked = np.ma.array(np.ones((2, 4)), mask=[[False] * 3 + [True], [False] * 4])
    features = dict(zip("abcd", masked.T, strict=True))
    for batch in ({"inputs": masked}, features):
        with pytest.raises(ValueError, match="found masked entries, expected numbers"):
            BatchScorer(table.path)(batch)


def test_a_missing_column_to_keep_and_an_infinite_output_are_told(table: Predictor) -> None:
    with pytest.raises(ValueError, match="keep: found no column 'id', expected columns of the batch: 'inputs'"):
        BatchScorer(table.path, keep=["id"])({"inputs": INPUTS})
    huge = INPUTS.copy()
    huge[3] = 3e38
    for size in (2, 256):
        with pytest.raises(NonFinitePrediction, match="for example 3 is not finite"):
            BatchScorer(table.path, batch_size=size)({"inputs": huge})


def test_rows_of_json_are_the_same_numbers(table: Predictor, tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", INPUTS)
    score_file(table, tmp_path / "inputs.npy", tmp_path / "rows.jsonl", batch_size=256)
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    found = BatchScorer(table.path)({"inputs": INPUTS})
    assert found["p_value"].tolist() == [line["p_value"] for line in lines]
