"""The rows of a finished job -> .jsonl, .csv or .parquet, one line at a time, moved into place at the end."""

import csv
import heapq
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import ScoringError
from .rows import Row, flat
from .tables import NEED_PYARROW

Columns = Mapping[str, type]
BLOCK_BYTES = 2**22


def write_csv(part: Path, temporary: Path, columns: Columns, names: Sequence[str]) -> None:
    """With a header; several labels, such as a prediction set, are a JSON list."""
    with open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        for row in _rows(part):
            cells = {
                name: json.dumps(cell, ensure_ascii=False) if isinstance(cell, list) else cell
                for name, cell in flat(row, names).items()
            }
            writer.writerow(cells)


def write_parquet(part: Path, temporary: Path, columns: Columns, names: Sequence[str]) -> None:
    """Of one row group for each few megabytes of rows; a prediction set is a list of strings."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    kinds = {
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
        str: pa.string(),
        list: pa.list_(pa.string()),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with open(part, "rb") as file, ParquetWriter(temporary, schema) as writer:
        while lines := file.readlines(BLOCK_BYTES):
            block = [flat(json.loads(line), names) for line in lines]
            writer.write_batch(pa.RecordBatch.from_pylist(block, schema))


WRITERS: Mapping[str, Callable[[Path, Path, Columns, Sequence[str]], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
}
PART_FORMAT = ".jsonl"  # in which rows are kept until then


def check_format(out: Path) -> None:
    """Raises `ScoringError` for a suffix that is no format, or whose format cannot be written here."""
    if out.suffix not in (PART_FORMAT, *WRITERS):
        expected = ", ".join((PART_FORMAT, *WRITERS))
        raise ScoringError(f"--out {out}: found the suffix {out.suffix!r}, expected one of {expected}")
    if out.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise ScoringError(f"--out {out}: {NEED_PYARROW}") from None


def strangest(part: Path, count: int) -> list[Row]:
    """Those with the largest scores, in descending order."""
    return heapq.nlargest(count, _rows(part), key=lambda row: float(row["score"]))


def publish(part: Path, out: Path, columns: Columns, names: Sequence[str]) -> None:
    """Write `out` in its format from the rows of `part`, which are on disk, and remove `part`.

    names: of the outputs.
    """
    if out.suffix == PART_FORMAT:
        part.replace(out)
        return
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        WRITERS[out.suffix](part, temporary, columns, names)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    part.unlink(missing_ok=True)


def _rows(part: Path) -> Iterator[Row]:
    with open(part, encoding="utf-8") as file:
        for line in file:
            row: dict[str, Any] = json.loads(line)
            yield row
