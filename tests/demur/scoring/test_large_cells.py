"""Files whose cells or lines are far larger than what is read of them: refused by name and row, in little memory."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.scoring.errors import ScoringError
from demur.scoring.inputs import MAX_CELL
from demur.scoring.job import open_source, score_file
from demur.service.bundle import InputSpec
from demur.service.inference.predictor import Predictor

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

SPEC, ROWS, LARGE = InputSpec(shape=(1,)), 300, 1_000_000


@contextmanager
def counted() -> Iterator[Any]:
    """Arrow's memory, counted in the block."""
    before = pyarrow.default_memory_pool()
    pool = pyarrow.proxy_memory_pool(before)
    pyarrow.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pyarrow.set_memory_pool(before)


def write(path: Path, cells: Any, **options: Any) -> Path:
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": np.ones(len(cells)), "k": cells}), path, compression="zstd", **options)
    return path


def cells_of(kind: str, large: int) -> Any:
    """A column of small cells, but for those from the 20th on; and how it is written."""
    text, few = "x" * large, [1] * (large // 8)
    small, big = {
        "dictionary": ("x", text),
        "category": ("x", text),
        "plain": ("x", text),
        "delta": ("x", text),
        "bytes": (b"x", text.encode()),
        "list": ([1], few),
        "struct": ({"b": "x"}, {"b": text}),
        "map": ([("b", "x")], [("b", text)]),
        "list of texts": (["x"], ["x" * 1000] * (large // 1000)),
    }[kind]
    kinds = {"map": pyarrow.map_(pyarrow.string(), pyarrow.string())}
    values = pyarrow.array([small, big], kinds.get(kind))
    places = pyarrow.array([0] * 20 + [1] * (ROWS - 20), pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(places, values) if kind == "category" else values.take(places)


KINDS = ("dictionary", "category", "plain", "delta", "bytes", "list", "struct", "map", "list of texts")
WRITTEN: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False, "row_group_size": 50, "write_batch_size": 1},
    "delta": {"use_dictionary": False, "column_encoding": {"k": "DELTA_BYTE_ARRAY"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_cell_of_parquet_is_named_and_few_are_unpacked(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", cells_of(kind, LARGE), **WRITTEN.get(kind, {}))
    assert path.stat().st_size < 100_000
    with (
        counted() as pool,
        pytest.raises(ScoringError, match=r"row \d+( on)?, column '.*expected at most 131,072") as caught,
    ):
        list(open_source(path, SPEC, keep=["k"]).batches(0, 256))
    assert "row 20," in str(caught.value) or kind == "plain"
    assert pool.max_memory() < 40 * LARGE  # of 280 cells, each in Arrow's buffers


@pytest.mark.parametrize("kind", KINDS)
def test_cells_below_the_limit_are_kept_as_they_are(kind: str, tmp_path: Path) -> None:
    cells = cells_of(kind, 60_000)
    path = write(tmp_path / "x.parquet", cells, **WRITTEN.get(kind, {}))
    for size in (1, 7, 8, 256, 1000):
        batches = list(open_source(path, SPEC, keep=["k"]).batches(0, size))
        assert all(len(batch.inputs) <= size for batch in batches)
        kept = [cell for batch in batches for cell in batch.kept["k"]]
        assert kept == [str(cell) for cell in cells.to_pylist()]
    later = list(open_source(path, SPEC, keep=["k"]).batches(299, 256))
    assert [len(batch.inputs) for batch in later] == [1]


def test_large_texts_of_parquet_are_refused_too(tmp_path: Path, table: Predictor) -> None:
    from demur.scoring.texts import TextColumn

    path = write(tmp_path / "x.parquet", cells_of("dictionary", LARGE))
    renamed = pyarrow.parquet.read_table(path).rename_columns(["a", "text"])
    pyarrow.parquet.write_table(renamed, path)
    with pytest.raises(ScoringError, match="row 20, column 'text': found a cell of"):
        list(open_source(path, SPEC, texts=TextColumn(None, SPEC)).batches(20, 8))  # type: ignore[arg-type]


LINES = {
    "x.csv": ("a,k\n1,x\n", f"1,{'x' * (MAX_CELL + 1)}\n", "line 3: found no .csv file .field larger than field limit"),
    "y.csv": ("a,k\n1,x\n", "1," + "x," * 3_000_000, "line 3: found more than 4,194,336 characters"),
    "x.jsonl": (
        '{"inputs": [1], "k": "x"}\n',
        json.dumps({"inputs": [1], "k": "x" * (MAX_CELL + 1)}),
        "line 2, 'k': found 131,073 characters, expected at most 131,072",
    ),
    "y.jsonl": (
        '{"inputs": [1], "k": "x"}\n',
        json.dumps({"inputs": [1], "k": list(range(50_000))}),
        "line 2, 'k': found .* characters",
    ),
    "z.jsonl": ('{"inputs": [1], "k": "x"}\n', "[" * 5_000_000, "line 2: found more than 4,194,336 characters"),
}


@pytest.mark.parametrize("name", LINES)
def test_large_cells_and_lines_of_text_are_named(name: str, tmp_path: Path) -> None:
    start, large, message = LINES[name]
    (tmp_path / name).write_text(start + large)
    with pytest.raises(ScoringError, match=message):
        list(open_source(tmp_path / name, SPEC, keep=["k"]).batches(0, 256))


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_cells_up_to_the_limit_are_written_in_every_format(suffix: str, tmp_path: Path, table: Predictor) -> None:
    width = table.manifest.input.shape[0]
    cell = "x" * MAX_CELL
    lines = [json.dumps({"inputs": [0.5] * width, "k": cell}) for _ in range(100)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    out = tmp_path / f"out{suffix}"
    assert score_file(table, tmp_path / "x.jsonl", out, batch_size=32, keep=["k"]) == 100
    assert out.stat().st_size > (0 if suffix == ".parquet" else 100 * MAX_CELL)
    if suffix == ".parquet":
        found = pyarrow.parquet.ParquetFile(out)
        assert found.metadata.num_rows == 100
        assert found.metadata.num_row_groups > 1
        assert found.read(["k"]).column("k").to_pylist() == [cell] * 100
