"""demur/scoring/lines.py: JSON lines, such as an audit trail with inputs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.scoring.errors import ScoringError
from demur.scoring.job import open_source, score_file
from demur.service.bundle import InputSpec
from demur.service.inference.predictor import Predictor
from demur.service.settings import Settings
from tests.support.bundles import FEATURE_SPEC
from tests.support.client import serving

INPUTS = np.random.default_rng(3).normal(size=(20, 4)).astype(np.float32)


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def written(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def lines_of(model: str = "a") -> list[dict[str, Any]]:
    return [{"id": f"r{i}", "model": model, "index": i, "inputs": row} for i, row in enumerate(INPUTS.tolist())]


def test_the_audit_trail_of_a_service_gives_its_answers_again(table: Predictor, tmp_path: Path, out: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with serving(table, Settings(audit_file=audit, audit_inputs=True)) as client:
        for first in range(0, len(INPUTS), 5):
            assert client.predict({"inputs": INPUTS[first : first + 5].tolist()}).status_code == 200
    said = [line for line in rows_of(audit) if "event" not in line]  # those are left out
    assert score_file(table, audit, out, batch_size=7, keep=["id", "index"]) == len(INPUTS)
    rows = rows_of(out)
    for row, line in zip(rows, said, strict=True):
        assert (row["id"], row["index"]) == (line["id"], str(line["index"]))
        assert (row["label"], row["rejected"]) == (line["label"], line["rejected"])
        for name in ("probability", "score", "p_value"):
            assert row[name] == pytest.approx(line[name], rel=1e-5)
    repeated = [line | {"repeated": True} for line in rows_of(audit) if "event" in line]  # as a later file begins
    later = written(tmp_path / "audit.jsonl.1", [*repeated, *said])
    assert score_file(table, later, tmp_path / "again.jsonl", batch_size=7) == len(INPUTS)


def test_a_byte_order_mark_is_no_part_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines_of()), "utf-8-sig")
    found = np.concatenate([batch.inputs for batch in open_source(path, FEATURE_SPEC).batches(0, 6)])
    np.testing.assert_array_equal(found, INPUTS)


def test_each_input_is_what_the_network_took_to_the_bit(tmp_path: Path) -> None:
    source = open_source(written(tmp_path / "audit.jsonl.3", lines_of()), FEATURE_SPEC)
    found = np.concatenate([batch.inputs for batch in source.batches(0, 6)])
    np.testing.assert_array_equal(found, INPUTS)
    assert found.dtype == np.float32


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    """As of a network that takes tokens, whose service keeps them in its audit trail."""
    spec = InputSpec(shape=(3,), dtype="int64")
    lines = [{"inputs": [1, 2, 3]}, {"inputs": [4, 5, 2**40]}]
    (batch,) = open_source(written(tmp_path / "audit.jsonl", lines), spec).batches(0, 6)
    assert batch.inputs.dtype == np.int64
    assert batch.inputs.tolist() == [[1, 2, 3], [4, 5, 2**40]]
    with pytest.raises(ScoringError, match="whole numbers"):
        list(open_source(written(tmp_path / "odd.jsonl", [{"inputs": [1, 2, 3.5]}]), spec).batches(0, 6))


def test_of_several_models_the_lines_of_the_bundles_own_count(tmp_path: Path) -> None:
    lines = [{"model": "other", "inputs": [1.0]}, *lines_of("mine"), {"model": "other", "inputs": [1.0]}]
    path = written(tmp_path / "lines.jsonl", lines)
    source = open_source(path, FEATURE_SPEC, model="mine")
    assert source.count == len(INPUTS)
    np.testing.assert_array_equal(next(source.batches(3, 4)).inputs, INPUTS[3:7])
    with pytest.raises(ScoringError, match="found lines of the models 'mine', 'other', expected some of 'third'"):
        open_source(path, FEATURE_SPEC, model="third")


def test_of_one_model_all_lines_count_whatever_its_name(tmp_path: Path) -> None:
    assert open_source(written(tmp_path / "lines.jsonl", lines_of()), FEATURE_SPEC, model="b").count == len(INPUTS)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2: found no JSON"),
        ('{"inputs": [1], "inputs": [2]}', "line 2: found the name 'inputs' twice in one object"),
        ("[1]", "line 2: found list, expected a JSON object"),
        ('{"id": "x"}', "line 2: found no 'inputs'.*DEMUR_AUDIT_INPUTS=true"),
        ('{"inputs": [1, 2]}', r"line 2: inputs: found shape \(2,\), expected \(4,\)"),
        ('{"inputs": [[1], [2, 3]]}', "line 2: inputs: found entries of different lengths"),
        ('{"inputs": ["a", "b", "c", "d"]}', "line 2: inputs, row 0: found 'a', expected a number"),
        ('{"inputs": ["1", "2", "3", "4"]}', "line 2: inputs, row 0: found '1', expected a number"),
        ('{"inputs": {"a": 1}}', "line 2: inputs: found {'a': 1}, expected an array"),
        ('{"inputs": [1, 2, 3, NaN]}', "found nan"),
        ('{"inputs": [1, 2, 3, 1e300]}', "found inf"),
    ],
)
def test_what_is_refused_is_told_with_its_line(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"inputs": [1, 2, 3, 4]}\n' + line + "\n")
    with pytest.raises(ScoringError, match=problem):
        list(open_source(path, FEATURE_SPEC).batches(0, 10))


def test_an_empty_file_and_a_missing_field_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ScoringError, match="found no line"):
        open_source(tmp_path / "empty.jsonl", FEATURE_SPEC)
    path = written(tmp_path / "lines.jsonl", lines_of())
    with pytest.raises(ScoringError, match="--keep: found no 'name' in line 1"):
        next(open_source(path, FEATURE_SPEC, keep=["name"]).batches(0, 1))


def test_two_bundles_are_compared_on_it(table: Predictor, tmp_path: Path) -> None:
    path = written(tmp_path / "lines.jsonl", lines_of())
    found = CliRunner().invoke(app, ["compare", str(table.path), str(table.path), "--on", str(path)])
    assert found.exit_code == 0, found.output
    assert "20 inputs" in found.output
