"""demur/scoring/batches.py: the columns of `demur score` for the batches of an engine."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from demur import BatchScorer, Policy
from demur.scoring.job import score_file
from demur.service.bundle import BundleError, InputPart, InputSpec
from demur.service.inference.predictor import NonFinitePrediction, Predictor
from tests.support.bundles import TEXT_SPEC, tokenizer_json, write_linear
from tests.support.places import running
from tests.support.signing import KEY, pem

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


def test_a_missing_column_to_keep_and_an_infinite_output_are_told(table: Predictor) -> None:
    with pytest.raises(ValueError, match="keep: found the columns 'inputs', expected 'id' among them"):
        BatchScorer(table.path, keep=["id"])({"inputs": INPUTS})
    huge = INPUTS.copy()
    huge[3] = 3e38
    with pytest.raises(NonFinitePrediction):
        BatchScorer(table.path)({"inputs": huge})


def test_rows_of_json_are_the_same_numbers(table: Predictor, tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", INPUTS)
    score_file(table, tmp_path / "inputs.npy", tmp_path / "rows.jsonl", batch_size=256)
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    found = BatchScorer(table.path)({"inputs": INPUTS})
    assert found["p_value"].tolist() == [line["p_value"] for line in lines]
