"""Inputs from tables: .csv, and .parquet where pyarrow is installed. A row is one input, its entries in C order."""

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from probity.scoring.errors import ScoringError
from probity.scoring.inputs import Array, Batch, Source, checked_rows
from probity.service.bundle import InputSpec

NEED_PYARROW = "needs pyarrow: pip install 'probity-serve[score]', or use another format"


def open_csv(path: Path, spec: InputSpec, has_header: bool | None = None) -> Source:
    """A .csv file; a header chooses columns by the bundle's feature names, if it has any. Empty lines are left out.

    has_header: whether the first line is one; None: if it has all feature names, or no number at all. A line of the
    numbers 0, 1, 2, ... may be what pandas writes for columns without names, and raises `ScoringError` then.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = filter(None, csv.reader(file))
            first = next(rows, [])
            is_header = _is_header(first, spec, path) if has_header is None else has_header
            header = first if is_header else None
            count = sum(1 for _ in rows) + (header is None and bool(first))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ScoringError(f"{path}: found no .csv file ({error}), expected one in UTF-8") from None
    if not count:
        raise ScoringError(f"{path}: found no row, expected at least one input")
    chosen = _columns(header, spec, path) if header is not None else None

    def batches(start: int, size: int) -> Iterator[Batch]:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = filter(None, csv.reader(file))
            rest = islice(rows, start + (header is not None), None)
            first = start
            while block := list(islice(rest, size)):
                numbers = _numbers(block, chosen, spec, path, first)
                yield Batch(checked_rows(numbers.reshape(-1, *spec.shape), spec, path, first))
                first += len(block)

    return Source(count, batches)


def open_parquet(path: Path, spec: InputSpec) -> Source:
    """A .parquet file: columns by the bundle's feature names, or all of them in order."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ScoringError(f"{path}: {NEED_PYARROW}") from None
    try:
        with ParquetFile(path) as file:
            names, count = list(file.schema_arrow.names), file.metadata.num_rows
    except ArrowException as error:
        raise ScoringError(f"{path}: found no .parquet file ({error!s:.150})") from None
    if not count:
        raise ScoringError(f"{path}: found no row, expected at least one input")
    wanted = [names[place] for place in _columns(names, spec, path)]

    def batches(start: int, size: int) -> Iterator[Batch]:
        first = 0
        with ParquetFile(path) as file:
            for table in file.iter_batches(size, columns=wanted):
                skipped, begin = max(0, start - first), first
                first += len(table)
                if skipped < len(table):
                    columns = [table.column(name).to_numpy(zero_copy_only=False)[skipped:] for name in wanted]
                    rows = np.stack(columns, axis=1).reshape(-1, *spec.shape)
                    yield Batch(checked_rows(rows, spec, path, begin + skipped))

    return Source(count, batches)


def _columns(header: Sequence[str], spec: InputSpec, path: Path) -> list[int]:
    """The places of the network's entries among the columns; other columns are left out where names tell them apart."""
    names, width = [name.strip() for name in header], math.prod(spec.shape)
    if spec.feature_names is None:
        if len(names) != width:
            raise ScoringError(f"{path}: found {len(names)} columns, expected {width} for shape {spec.shape}")
        return list(range(width))
    missing = [name for name in spec.feature_names if names.count(name) != 1]
    if missing:
        found = f"found the column {missing[0]!r:.80} {names.count(missing[0])} times"
        raise ScoringError(f"{path}: {found}, expected once: the columns are chosen by the bundle's feature names")
    return [names.index(name) for name in spec.feature_names]


def _numbers(block: list[list[str]], chosen: list[int] | None, spec: InputSpec, path: Path, first: int) -> Array:
    """The cells of a block of rows as numbers, (B, entries); the error names row and column."""
    width, kind = math.prod(spec.shape), np.int64 if spec.dtype == "int64" else np.float64
    least = width if chosen is None else max(chosen, default=-1) + 1
    for i, row in enumerate(block):
        if len(row) < least or (chosen is None and len(row) != width):
            raise ScoringError(f"{path}: row {first + i}: found {len(row)} columns, expected {least}")
    cells = block if chosen is None else [[row[place] for place in chosen] for row in block]
    try:
        numbers: Array = np.array(cells, kind)
    except (ValueError, OverflowError):
        raise _bad_cell(cells, kind, path, first) from None
    return numbers


def _bad_cell(cells: list[list[str]], kind: Any, path: Path, first: int) -> ScoringError:
    what = "a whole number" if kind is np.int64 else "a number"
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            try:
                np.array(cell, kind)
            except (ValueError, OverflowError):
                return ScoringError(f"{path}: row {first + i}, entry [{j}]: found {cell!r:.60}, expected {what}")
    raise AssertionError("unreachable: some cell is no number")


def _is_header(first: list[str], spec: InputSpec, path: Path) -> bool:
    if first and first == [str(place) for place in range(len(first))]:
        found = f"found the first line {','.join(first):.60}, which is data or the numbers of columns without names"
        raise ScoringError(f"{path}: {found}; expected --header or --no-header, to tell which")
    known = set(spec.feature_names or ())
    return bool(first) and (
        bool(known and known <= {cell.strip() for cell in first}) or not any(map(_is_number, first))
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
