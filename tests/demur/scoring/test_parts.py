"""`demur score --rows I/N`: several runs share the inputs of a file."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from demur.cli import app
from demur.scoring.inputs import Batch, Source, part_of
from demur.scoring.job import score_file
from demur.service.inference.predictor import Predictor

INPUTS = np.random.default_rng(4).normal(size=(23, 4)).astype(np.float32)


def source_of(count: int) -> Source:
    numbers = np.arange(count)

    def batches(start: int, size: int) -> Iterator[Batch]:
        for first in range(start, count, size):
            rows = numbers[first : first + size]
            yield Batch(rows, tuple(map(str, rows)), {"kept": rows.tolist()})

    return Source(count, batches, {"kept": int})


@settings(deadline=None)
@given(st.data(), st.integers(1, 60), st.integers(1, 10))
def test_the_parts_are_the_whole_in_order(data: st.DataObject, count: int, size: int) -> None:
    parts = data.draw(st.integers(1, count))
    found, lengths = [], []
    for number in range(1, parts + 1):
        part = part_of(source_of(count), number, parts)
        batches = list(part.batches(0, size))
        inputs = np.concatenate([batch.inputs for batch in batches])
        assert len(inputs) == part.count
        assert part.first == inputs[0]
        for batch in batches:
            assert batch.kept["kept"] == batch.inputs.tolist()
            assert batch.names == tuple(map(str, batch.inputs))
        start = data.draw(st.integers(0, part.count))  # at its end where a run was interrupted as it wrote the result
        again = [row for batch in part.batches(start, size) for row in batch.inputs.tolist()]
        assert again == inputs[start:].tolist()
        assert all(len(batch.inputs) for batch in part.batches(start, size))
        found.append(inputs)
        lengths.append(part.count)
    np.testing.assert_array_equal(np.concatenate(found), np.arange(count))
    assert max(lengths) - min(lengths) <= 1


def test_rows_keep_their_numbers(table: Predictor, tmp_path: Path, out: Path) -> None:
    np.save(tmp_path / "inputs.npy", INPUTS)
    score_file(table, tmp_path / "inputs.npy", out, batch_size=4)
    together = ""
    for number in range(1, 4):
        arguments = ["score", table.path, tmp_path / "inputs.npy", "--out", tmp_path / f"{number}.jsonl"]
        options = ["--rows", f"{number}/3", "--batch-size", "4", "--threads", "1"]
        done = CliRunner().invoke(app, list(map(str, [*arguments, *options])))
        assert done.exit_code == 0, done.output
        together += (tmp_path / f"{number}.jsonl").read_text()
    rows = [json.loads(line) for line in together.splitlines()]
    whole = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["row"] for row in rows] == list(range(len(INPUTS)))
    assert [row["label"] for row in rows] == [row["label"] for row in whole]
    np.testing.assert_allclose([row["score"] for row in rows], [row["score"] for row in whole], rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("0/3", "expected I/N, such as 1/4"),
        ("4/3", "expected I/N"),
        ("1", "expected I/N"),
        ("1/x", "expected I/N"),
        ("-1/3", "expected I/N"),
        ("1/24", "--rows 1/24: found 23 inputs, expected one for each part at least"),
    ],
)
def test_what_is_refused(rows: str, words: str, table: Predictor, tmp_path: Path, out: Path) -> None:
    np.save(tmp_path / "inputs.npy", INPUTS)
    arguments = ["score", table.path, tmp_path / "inputs.npy", "--out", out, "--rows", rows]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())
    assert not out.exists()


def test_another_part_does_not_go_on_from_this_one(table: Predictor, tmp_path: Path, out: Path) -> None:
    inputs = INPUTS[:22].copy()  # parts of the same size: only their beginnings differ
    inputs[5] = np.nan
    np.save(tmp_path / "inputs.npy", inputs)
    common = [str(each) for each in ("score", table.path, tmp_path / "inputs.npy", "--out", out, "--batch-size", "2")]
    first = CliRunner().invoke(app, [*common, "--rows", "1/2"])
    assert "row 5" in first.output
    second = CliRunner().invoke(app, [*common, "--rows", "2/2"])
    assert second.exit_code == 2
    assert "found a job with first 0, expected 11" in second.output
