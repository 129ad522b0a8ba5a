"""`demur score` on the command line: without torch, without pyarrow, and killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.scoring.command import listed
from demur.scoring.progress_file import Job, ProgressFile
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor

# Pretends that packages are not installed; with a number at the end, the process kills itself after so many inputs.
COMMAND = """
import os, signal, sys

missing, last = sys.argv[1].split(","), int(sys.argv[2])

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"import of {name}")

sys.meta_path.insert(0, Missing())
import demur.scoring.job as job
from demur.__main__ import main

predict = job.scored
def scored(predictor, batch, first, **options):
    if first >= last:
        os.kill(os.getpid(), signal.SIGKILL)
    return predict(predictor, batch, first, **options)

job.scored = scored
sys.argv = ["demur", "score", *sys.argv[3:]]
main()
"""
TORCH = "torch,onnx,onnxscript,sklearn,scipy,httpx"


def score(*arguments: object, missing: str = TORCH, last: int = 10**6) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", COMMAND, missing, str(last), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    np.save(tmp_path / "inputs.npy", np.random.default_rng(1).normal(size=(50, 4)))
    return tmp_path / "inputs.npy"


def test_it_needs_no_torch_and_goes_on_after_a_kill(table: Predictor, inputs: Path, out: Path) -> None:
    arguments = (table.path, inputs, "--out", out, "--batch-size", 8, "--threads", 1, "--false-reject-rate", 0.2)
    assert score(*arguments, last=24).returncode == -signal.SIGKILL
    assert not out.exists()
    done = score(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"Scored 50 inputs: {out}\n"
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    expected = Predictor.load(table.path, threads=1, policy=Policy(false_reject_rate=0.2)).predict(np.load(inputs))
    assert [row["rejected"] for row in rows] == expected.rejected.tolist()
    assert [row["score"] for row in rows] == pytest.approx(expected.score.tolist())
    assert [file.name for file in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_the_strangest_inputs_are_listed(table: Predictor, inputs: Path, tmp_path: Path, suffix: str) -> None:
    done = CliRunner().invoke(
        app, ["score", *map(str, (table.path, inputs, "--out", tmp_path / f"rows{suffix}")), "--top", "3"]
    )
    predicted = Predictor.load(table.path).predict(np.load(inputs))
    labels, order = predicted.probabilities, np.argsort(-predicted.score)[:3]
    assert labels is not None
    assert done.stdout.splitlines()[:-1] == [
        f"row {i}: score {predicted.score[i]:.4g}, p-value {predicted.p_value[i]:.4g}"
        f"{', rejected' if predicted.rejected[i] else ''}: {table.manifest.labels[int(labels[i].argmax())]}"
        for i in order
    ]


def test_of_files_and_values_the_strangest_are_listed_too() -> None:
    """Names are shown in one line, whatever they hold."""
    shared = {"score": 2.0, "p_value": 0.01, "rejected": True}
    rows = [{"row": 0, "file": "a\nb.png", "labels": ["x", "y"]}, {"row": 1, "mean": [1.5, -1 / 3], "labels": "kept"}]
    assert [listed(row | shared) for row in rows] == [
        r"a\nb.png: score 2, p-value 0.01, rejected: x, y",
        "row 1: score 2, p-value 0.01, rejected: 1.5, -0.3333",
    ]


def test_parquet_without_pyarrow_says_what_to_install(table: Predictor, inputs: Path, tmp_path: Path) -> None:
    for arguments in (
        (inputs, "--out", tmp_path / "rows.parquet"),
        (tmp_path / "in.parquet", "--out", tmp_path / "o.csv"),
    ):
        (tmp_path / "in.parquet").write_bytes(b"")
        done = score(table.path, *arguments, missing=f"{TORCH},pyarrow")
        assert done.returncode == 2
        assert "needs pyarrow: in a checkout of Demur, pip install '.[score]'" in done.stderr
        assert done.stderr.count("\n") == 1


def test_errors_are_one_line(table: Predictor, inputs: Path, out: Path) -> None:
    for arguments, message in (
        ((inputs.parent / "none", inputs, "--out", out), "no such folder"),
        ((table.path, inputs.parent / "none.csv", "--out", out), "no such file or folder"),
        ((table.path, inputs, "--out", out, "--false-reject-rate", 0.0001), "false_reject_rate: found 0.0001"),
    ):
        result = CliRunner().invoke(app, ["score", *map(str, arguments)])
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
    assert not out.exists()


def test_whether_a_table_has_a_header_can_be_said(values: Predictor, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.csv"
    inputs.write_text("0,1,2\n0.5,0.25,1\n")
    for options, said in (
        (["--header"], "Scored 1 inputs: "),
        (["--no-header"], "Scored 2 inputs: "),
        ([], "expected --header or --no-header, to tell which"),
        (["--header", "--no-header"], "expected at most one of them"),
    ):
        arguments = [str(values.path), str(inputs), "--out", str(tmp_path / "rows.csv"), "--force"]
        result = CliRunner().invoke(app, ["score", *arguments, *options])
        assert result.exit_code == (0 if said.startswith("Scored") else 2)
        assert said in result.output


def test_a_guess_is_said(values: Predictor, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.csv"
    inputs.write_text("2021,2022,2023\n0.5,0.25,1\n")
    result = CliRunner().invoke(app, ["score", str(values.path), str(inputs), "--out", str(tmp_path / "rows.csv")])
    assert result.exit_code == 0
    guess = "inputs.csv: the first line, 2021,2022,2023, was taken for an example"
    assert guess in " ".join(result.stderr.split())
    inputs.write_text("2021,2022,2023\n0.5,high,1\n")  # also where it fails, and the guess may be why
    result = CliRunner().invoke(app, ["score", str(values.path), str(inputs), "--out", str(tmp_path / "more.csv")])
    assert result.exit_code == 2
    assert guess in " ".join(result.stderr.split())
    assert "found 'high', expected a number" in " ".join(result.stderr.split())


def test_a_part_belongs_to_one_process(table: Predictor, inputs: Path, out: Path) -> None:
    held = ProgressFile(out, Job("digest", "inputs", 50, {"false_reject_rate": 0.1})).open(force=False)
    try:
        result = CliRunner().invoke(app, ["score", str(table.path), str(inputs), "--out", str(out), "--force"])
        assert "another process is writing it" in result.stderr
    finally:
        held.close()


@pytest.mark.parametrize("state", ["", "{}", '{"job": {}, "rows": 1, "bytes": 1}'])
def test_a_damaged_record_is_refused(table: Predictor, inputs: Path, out: Path, state: str) -> None:
    ProgressFile(out, Job("digest", "inputs", 50, {"false_reject_rate": 0.1})).open(force=False).close()
    (out.parent / "rows.jsonl.part.json").write_text(state)
    result = CliRunner().invoke(app, ["score", str(table.path), str(inputs), "--out", str(out)])
    assert "found no record of a scoring job" in result.stderr
    (out.parent / "rows.jsonl.part.json").unlink()
    (out.parent / "rows.jsonl.part").write_text("rows")
    result = CliRunner().invoke(app, ["score", str(table.path), str(inputs), "--out", str(out)])
    assert "found rows without rows.jsonl.part.json" in result.stderr
