"""Whole jobs: the service's numbers, from every kind of file, and a killed run that goes on."""

import base64
import csv
import io
import itertools
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from demur.scoring.errors import ScoringError
from demur.scoring.job import score_file
from demur.service.bundle import InputRange, InputSpec
from demur.service.codec.arrays import InputError
from demur.service.format.manifest_input import InputPart
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC, write_linear, write_tokens
from tests.support.client import serving

EXACT = ("label", "rejected", "prediction_set")


def drawn(count: int, width: int = 4) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, width)).astype(np.float32)


def save(folder: Path, array: np.ndarray) -> Path:
    np.save(folder / "inputs.npy", array)
    return folder / "inputs.npy"


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def same_as_served(rows: list[dict[str, Any]], answers: list[dict[str, Any]]) -> None:
    assert len(rows) == len(answers)
    for number, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        expected = {name: answer[name] for name in row if name in answer}
        expected |= {name: answer[name] for name in ("score", "p_value", "rejected")}
        if answer.get("interval"):
            expected |= {name: answer["interval"][name] for name in ("low", "high")}
        if answer.get("prediction_set"):
            expected["prediction_set"] = answer["prediction_set"]["labels"]
        assert row.keys() - {"file"} == expected.keys() | {"row"}
        assert row["row"] == number
        for name, value in expected.items():
            exact = name in EXACT or value is None
            assert row[name] == (value if exact else pytest.approx(value, rel=1e-5)), name


@pytest.mark.parametrize(("kind", "width"), [("table", 4), ("values", 3)])
def test_rows_are_what_a_service_answers(
    kind: str, width: int, request: pytest.FixtureRequest, tmp_path: Path, out: Path
) -> None:
    predictor: Predictor = request.getfixturevalue(kind)
    inputs = drawn(50, width)
    assert score_file(predictor, save(tmp_path, inputs), out, batch_size=16) == 50
    with serving(predictor) as client:
        answer = client.predict({"inputs": inputs.tolist()}).json()
    rows = rows_of(out)
    same_as_served(rows, answer["predictions"])
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_images_are_decoded_as_the_service_does(pictures: Predictor, tmp_path: Path, out: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "notes.txt").write_text("no image")
    for number, name in enumerate(("b.png", "a.JPG", "c.webp")):
        pixels = np.random.default_rng(number).integers(0, 256, (7, 9, 3), np.uint8)
        Image.fromarray(pixels).save(folder / name)
    texts = [base64.b64encode((folder / name).read_bytes()).decode() for name in ("a.JPG", "b.png", "c.webp")]
    score_file(pictures, folder, out, batch_size=2)
    with serving(pictures) as client:
        answer = client.predict({"images": texts}).json()
    rows = rows_of(out)
    assert [row["file"] for row in rows] == ["a.JPG", "b.png", "c.webp"]
    same_as_served(rows, answer["predictions"])


def test_names_that_are_no_text_are_written_with_escapes(pictures: Predictor, tmp_path: Path, out: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in (b"caf\xe9.png", "né.png".encode()):
        with open(os.path.join(os.fsencode(folder), name), "wb") as file:  # noqa: PTH118  bytes
            Image.fromarray(np.zeros((7, 9, 3), np.uint8)).save(file, "PNG")
    score_file(pictures, folder, out, batch_size=2)
    assert sorted(row["file"] for row in rows_of(out)) == [r"caf\xe9.png", "né.png"]


def test_every_format_holds_the_same_numbers(table: Predictor, tmp_path: Path, out: Path) -> None:
    path = save(tmp_path, drawn(40))
    files = [out, out.with_suffix(".csv"), out.with_suffix(".parquet")]
    for file in files:
        score_file(table, path, file, batch_size=7)
    rows = rows_of(out)
    with open(files[1], newline="") as stream:
        lines = list(csv.DictReader(stream))
    stored = parquet.read_table(files[2]).to_pylist()
    for row, line, record in zip(rows, lines, stored, strict=True):
        assert list(line) == list(record)
        assert (int(line["row"]), line["label"], line["rejected"]) == (row["row"], row["label"], str(row["rejected"]))
        assert json.loads(line["prediction_set"]) == record["prediction_set"] == row["prediction_set"]
        for name in ("probability", "score", "p_value"):
            assert float(line[name]) == record[name] == row[name]
        assert [float(line[f"probability_{name}"]) for name in row["probabilities"]] == list(
            row["probabilities"].values()
        )


def test_a_regression_has_a_column_for_each_output(values: Predictor, tmp_path: Path, out: Path) -> None:
    score_file(values, save(tmp_path, drawn(5, 3)), out.with_suffix(".csv"), batch_size=7)
    header = out.with_suffix(".csv").read_text().splitlines()[0].split(",")
    each = [f"{name}_{k}" for name in ("mean", "std", "low", "high", "variance") for k in (0, 1)]
    assert header == ["row", *each, "score", "p_value", "rejected"]


def test_tables_are_read_by_name(table: Predictor, tmp_path: Path, out: Path) -> None:
    inputs = drawn(30)
    score_file(table, save(tmp_path, inputs), out, batch_size=8)
    expected = rows_of(out)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["d", "target", "b", "a", "c"])
    writer.writerows([[repr(float(row[k])) for k in (3, 0, 1, 0, 2)] for row in inputs])
    (tmp_path / "named.csv").write_text(text.getvalue().replace("\n", "\n\n"))
    np.savetxt(tmp_path / "plain.csv", inputs, delimiter=",", fmt="%.17g")
    columns = {name: inputs[:, k] for k, name in ((3, "d"), (1, "b"), (0, "a"), (2, "c"))}
    parquet.write_table(pa.table({"id": [str(k) for k in range(30)], **columns}), tmp_path / "named.parquet", 7)
    for name in ("named.csv", "plain.csv", "named.parquet"):
        score_file(table, tmp_path / name, out, batch_size=8, force=True)
        assert rows_of(out) == expected, name


def test_columns_are_kept_beside_the_predictions(table: Predictor, tmp_path: Path, out: Path) -> None:
    inputs, ids = drawn(20), [f"{k:03}" for k in range(20)]
    score_file(table, save(tmp_path, inputs), out, batch_size=8)
    plain = rows_of(out)
    frame = pd.DataFrame({"patient_id": ids, **dict(zip("dcba", inputs[:, ::-1].T, strict=True)), "label": "healthy"})
    frame["age"] = [None, *range(19)]
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame.to_parquet(tmp_path / "table.parquet")
    ages: dict[str, list[Any]] = {
        "table.csv": ["", *(f"{k}.0" for k in range(19))],
        "table.parquet": [None, *map(float, range(19))],
    }
    for name, suffix in itertools.product(ages, (".jsonl", ".csv", ".parquet")):
        found = out.with_suffix(suffix)
        keep = ["patient_id", "label", "age"]
        score_file(table, tmp_path / name, found, batch_size=7, keep=keep, force=True)
        if suffix == ".jsonl":
            kept = {"patient_id": ids, "input_label": ["healthy"] * 20, "age": ages[name]}
            expected = [
                {"row": row["row"]} | {column: cells[i] for column, cells in kept.items()} | row
                for i, row in enumerate(plain)
            ]
            assert [list(row.items()) for row in rows_of(found)] == [list(row.items()) for row in expected]
        else:
            read = pd.read_csv(found, dtype=str) if suffix == ".csv" else pd.read_parquet(found)
            assert read.columns[:5].tolist() == ["row", "patient_id", "input_label", "age", "label"]
            assert read["patient_id"].tolist() == ids
            assert read["label"].tolist() == [row["label"] for row in plain]


def test_what_cannot_be_kept(table: Predictor, tmp_path: Path, out: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b,c,d,patient\n1,2,3,4,x\n")
    with pytest.raises(ScoringError, match=r"^--keep: found no column 'patient_id' \(did you mean 'patient'\?\)"):
        score_file(table, path, out, batch_size=8, keep=["patient_id"])
    path.write_text("1,2,3,4\n")
    with pytest.raises(ScoringError, match=r"^--keep: found no header in .*table\.csv"):
        score_file(table, path, out, batch_size=8, keep=["patient_id"])
    with pytest.raises(ScoringError, match=r"^--keep: found .*inputs\.npy, expected a table"):
        score_file(table, save(tmp_path, drawn(3)), out, batch_size=8, keep=["patient_id"])


def test_without_feature_names_a_kept_column_is_no_input(values: Predictor, tmp_path: Path, out: Path) -> None:
    (tmp_path / "table.csv").write_text("u,id,v,w\n1,x,2,3\n")
    np.save(tmp_path / "inputs.npy", [[1.0, 2.0, 3.0]])
    score_file(values, tmp_path / "inputs.npy", out, batch_size=8)
    expected = rows_of(out)
    score_file(values, tmp_path / "table.csv", out, batch_size=8, keep=["id"], force=True)
    assert rows_of(out) == [{"id": "x"} | row for row in expected]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_a_run_that_ended_early_goes_on(table: Predictor, tmp_path: Path, out: Path, suffix: str) -> None:
    out, path = out.with_suffix(suffix), save(tmp_path, drawn(50))

    def killed(done: int, count: int) -> None:
        if done == 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_file(table, path, out, batch_size=8, report=killed)
    assert not out.exists()
    part = out.with_name(f"{out.name}.part")
    with open(part, "ab") as file:
        file.write(b'{"row": 24, "lab')  # of a batch that a kill interrupted
    began: list[int] = []
    score_file(table, path, out, batch_size=7, report=lambda done, count: began.append(done))
    assert began[0] == 24
    whole = out.with_name(f"whole{suffix}")
    score_file(table, path, whole, batch_size=8)
    if suffix == ".parquet":
        assert parquet.read_table(out).to_pylist() == parquet.read_table(whole).to_pylist()
    else:
        assert out.read_bytes() == whole.read_bytes()
    assert sorted(file.name for file in out.parent.iterdir()) == sorted([out.name, whole.name])


def test_a_bad_row_is_named_and_what_was_done_stays(table: Predictor, tmp_path: Path, out: Path) -> None:
    inputs = drawn(50)
    inputs[37, 2] = np.nan
    path = save(tmp_path, inputs)
    with pytest.raises(ScoringError, match=r"inputs\.npy: row 37, column 'c': found nan, expected a finite number"):
        score_file(table, path, out, batch_size=8)
    assert len(rows_of(out.with_name("rows.jsonl.part"))) == 32
    inputs[37, 2] = 0.5
    began: list[int] = []
    score_file(table, save(tmp_path, inputs), out, batch_size=8, report=lambda done, count: began.append(done))
    assert began[0] == 32
    assert [row["row"] for row in rows_of(out)] == list(range(50))


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_a_value_that_the_network_refuses_is_named(tmp_path: Path, out: Path, suffix: str) -> None:
    tokens = Predictor.load(write_tokens(tmp_path / "tokens").path, threads=1)
    inputs = np.tile(np.array([[0, 1]], np.int64), (50, 1))
    inputs[37, 1] = 9
    path = tmp_path / f"inputs{suffix}"
    if suffix == ".npy":
        np.save(path, inputs)
    else:
        np.savetxt(path, inputs, fmt="%d", delimiter=",", header="first,second", comments="")
    place = r"row 37, entry \[1\]: the network looks up the value 9, expected one from 0 to 4"
    with pytest.raises(ScoringError, match=rf"inputs{suffix}: {place}"):
        score_file(tokens, path, out, batch_size=8)


def test_a_bad_image_is_named(pictures: Predictor, tmp_path: Path, out: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "broken.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"broken\.png: found bytes that are not an image"):
        score_file(pictures, tmp_path / "images", out, batch_size=8)


def test_another_job_is_not_continued(table: Predictor, tmp_path: Path, out: Path) -> None:
    inputs = drawn(20)

    def killed(done: int, count: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_file(table, save(tmp_path, inputs), out, batch_size=8, report=killed)
    other = Predictor.load(table.path, threads=1, policy=Policy(false_reject_rate=0.3))
    with pytest.raises(ScoringError, match=r"job with false_reject_rate 0\.1, expected 0\.3; .* --force"):
        score_file(other, save(tmp_path, inputs), out, batch_size=8)
    with pytest.raises(ScoringError, match="job with count 20, expected 21"):
        score_file(table, save(tmp_path, drawn(21)), out, batch_size=8)
    with pytest.raises(ScoringError, match="row 7: found another input than the one that was scored"):
        score_file(table, save(tmp_path, inputs + 1), out, batch_size=8)
    score_file(other, save(tmp_path, inputs + 1), out, batch_size=8, force=True)
    assert len(rows_of(out)) == 20
    with pytest.raises(ScoringError, match="exists; give another name, or --force"):
        score_file(table, save(tmp_path, inputs), out, batch_size=8)


@pytest.mark.parametrize("kind", ["rows", "images"])
def test_inputs_far_outside_the_range_of_the_fit_are_told(kind: str, tmp_path: Path, out: Path) -> None:
    """The first by its place and value, the others by their number."""
    spec = replace(FEATURE_SPEC if kind == "rows" else IMAGE_SPEC, range=InputRange(low=(-1.0,), high=(0.3,)))
    predictor = Predictor.load(write_linear(tmp_path / "bundle", outputs=3, spec=spec).path)
    if kind == "rows":
        inputs = np.full((30, 4), 0.2, np.float32)
        inputs[20:, 1] = 7.0
        path, place = save(tmp_path, inputs), "row 20"
    else:
        path, place = tmp_path / "images", "b.png"
        path.mkdir()
        for name, value in (("a.png", 10), ("b.png", 254), ("c.png", 255)):
            Image.new("RGB", (9, 7), (value, value, value)).save(path / name)
    warnings = list[str]()
    score_file(predictor, path, out, batch_size=8, warn=warnings.append)
    (warning,) = warnings
    found = re.fullmatch(
        rf"{re.escape(str(path))}: {place}: found the value (\S+), but the network was fitted on values from -1 to "
        r"0\.3: are the inputs scaled as they were for training\? So are (\d) more\.",
        warning,
    )
    assert found, warning
    assert (float(found[1]) == 7.0, found[2]) == ((True, "9") if kind == "rows" else (False, "1"))


def test_kept_numbers_beyond_int64_are_text_and_two_of_one_name_are_refused(table: Predictor, tmp_path: Path) -> None:
    """As hashes are, and as a file has them that was scored before."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    hashes = np.array([2**63 + 5, 7], np.uint64)
    columns = {**dict(zip("abcd", np.ones((4, 2)), strict=True)), "hash": hashes, "score": [0.5, 1.5]}
    parquet.write_table(pyarrow.table({**columns, "input_score": [1, 2]}), tmp_path / "x.parquet")
    score_file(table, tmp_path / "x.parquet", tmp_path / "y.parquet", batch_size=8, keep=["hash"])
    assert parquet.read_table(tmp_path / "y.parquet")["hash"].to_pylist() == [str(2**63 + 5), "7"]
    with pytest.raises(ScoringError, match="--keep: found score, input_score, of which two would have one name"):
        score_file(table, tmp_path / "x.parquet", tmp_path / "z.jsonl", batch_size=8, keep=["score", "input_score"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_of_several_inputs_are_found_by_their_names(tmp_path: Path, out: Path, suffix: str) -> None:
    spec = InputSpec(shape=(2,), parts=(InputPart("age", ()), InputPart("job", ())))
    predictor = Predictor.load(write_linear(tmp_path / "bundle", outputs=3, spec=spec).path, threads=1)
    frame = pd.DataFrame(drawn(6, 2), columns=["job", "age"])
    path = tmp_path / f"table{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    score_file(predictor, path, out, batch_size=4)
    expected = predictor.predict({name: frame[name].to_numpy() for name in frame})
    assert [row["score"] for row in rows_of(out)] == pytest.approx(expected.score.tolist(), rel=1e-5)


def test_a_file_that_grows_ends_where_it_ended(table: Predictor, tmp_path: Path, out: Path) -> None:
    """As the log of a service does that runs."""
    path = tmp_path / "audit.jsonl"
    line = json.dumps({"inputs": [0.1, 0.2, 0.3, 0.4]}) + "\n"
    path.write_text(20 * line)

    def grown(done: int, _: int) -> None:
        if done == 8:
            path.write_text(21 * line)

    assert score_file(table, path, out, batch_size=4, report=grown) == len(rows_of(out)) == 20
