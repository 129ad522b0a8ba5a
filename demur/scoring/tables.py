"""Inputs from tables: .csv, and .parquet where pyarrow is installed. A row is one input, its entries in C order."""

import csv
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from demur.service.bundle import InputSpec
from demur.service.format.files import BLOCK_BYTES
from demur.service.format.text import printable
from demur.service.inference.frames import places_by_name, plain_name

from .errors import ScoringError
from .inputs import MAX_CELL, Array, Batch, Source, bounded_lines, checked_rows
from .texts import TextColumn

NEED_PYARROW = "needs pyarrow: in a checkout of Demur, pip install '.[score]', or use another format"
TRUTHS = {"True": "1", "False": "0", "true": "1", "false": "0"}  # as data frames write them
ROWS_AT_ONCE = 8  # where cells may be large: Arrow decodes so many before their sizes are known
Line = tuple[int, list[str]]  # a row of a .csv file, and the number of its last line, counted from 1


@dataclass(frozen=True)
class _Layout:
    """Where a table has what: the places of the network's entries and of the kept columns, of `width` columns."""

    width: int
    entries: Sequence[int]
    kept: Mapping[str, int]
    has_header: bool


def open_csv(
    path: Path,
    spec: InputSpec,
    has_header: bool | None = None,
    keep: Sequence[str] = (),
    texts: TextColumn | None = None,
) -> Source:
    """A .csv file; a header chooses columns by the bundle's feature names, if it has any. Empty lines are left out.

    has_header: whether the first line is one; None: if it has all feature names, or no number at all, and where no
    feature name tells, the source's note says what the line was taken for. A line of the numbers 0, 1, 2, ... may be
    what pandas writes for columns without names, and raises `ScoringError` then. keep: the names of columns to keep as
    they are. texts: one column holds texts, and a header names it.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(bounded_lines(file, spec, path), strict=True)
            rows = filter(None, reader)
            first = next(rows, [])
            note = ""
            if has_header is None:
                has_header, is_sure = (True, True) if texts is not None else _is_header(first, spec, path)
                taken = "the names of the columns" if has_header else "an example"
                which = f"the first line, {printable(','.join(first)):.60}, was taken for {taken}"
                note = "" if is_sure else f"{which}; --header or --no-header says what it is"
            is_header = has_header and bool(first)
            count = sum(1 for _ in rows) + (not is_header and bool(first))
    except (csv.Error, UnicodeDecodeError) as error:
        found, cells = f"found no .csv file ({error})", f"with cells of at most {MAX_CELL:,} characters"
        expected = f"expected one in UTF-8 in which every quoted cell ends with its quote, {cells}"
        raise ScoringError(f"{path}: line {reader.line_num}: {found}, {expected}") from None
    if not count:
        raise ScoringError(f"{path}: found no row, expected at least one input")
    if keep and not is_header:
        raise ScoringError(f"--keep: found no header in {path}, expected one that names the columns; or --header")
    layout = _layout(first if is_header else None, spec, path, keep, texts)

    def batches(start: int, size: int) -> Iterator[Batch]:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(bounded_lines(file, spec, path), strict=True)
            lines = ((reader.line_num, row) for row in reader if row)
            rest = islice(lines, start + is_header, None)
            first = start
            while block := list(islice(rest, size)):
                _check_widths(block, layout, path, first)
                kept = {name: [row[place] for _, row in block] for name, place in layout.kept.items()}
                where = [f"row {first + i} (line {number})" for i, (number, _) in enumerate(block)]
                if texts is None:
                    numbers = _numbers(block, layout, spec, path, first)
                    rows = checked_rows(numbers.reshape(-1, *spec.shape), spec, path, where)
                else:
                    rows = texts.array([row[layout.entries[0]] for _, row in block], path, where)
                yield Batch(rows, kept=kept)
                first += len(block)

    return Source(count, batches, dict.fromkeys(layout.kept, str), note=note)


def open_parquet(path: Path, spec: InputSpec, keep: Sequence[str] = (), texts: TextColumn | None = None) -> Source:
    """A .parquet file: columns by the bundle's feature names, or all of them in order; `keep` those as they are. texts:
    one column holds texts."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ScoringError(f"{path}: {NEED_PYARROW}") from None
    try:
        with ParquetFile(path) as file:
            schema, metadata, count = file.schema_arrow, file.metadata, file.metadata.num_rows
    except ArrowException as error:
        raise ScoringError(f"{path}: found no .parquet file ({error!s:.150})") from None
    if not count:
        raise ScoringError(f"{path}: found no row, expected at least one input")
    names = list(schema.names)
    layout = _layout(names, spec, path, keep, texts)
    wanted = [names[place] for place in layout.entries]
    if texts is None:
        _check_types(path, [(names[place], schema.field(place).type) for place in layout.entries])
    kinds = {name: _kind(schema.field(place).type) for name, place in layout.kept.items()}
    kept_as = {name: names[place] for name, place in layout.kept.items()}
    read = list(dict.fromkeys([*wanted, *kept_as.values()]))
    wide = [name for name in read if not _is_narrow(schema.field(name).type)]
    _check_averages(metadata, wide, path)

    def batches(start: int, size: int) -> Iterator[Batch]:
        first = 0
        with _named(path, ArrowException), ParquetFile(path, buffer_size=BLOCK_BYTES) as file:
            for table in _tables(file, size, read, wide, path):
                skipped, begin = max(0, start - first), first
                first += len(table)
                if skipped < len(table):
                    kept = {
                        name: [_cell(value, kind) for value in _listed(table.column(kept_as[name]))[skipped:]]
                        for name, kind in kinds.items()
                    }
                    where = [f"row {begin + i}" for i in range(skipped, len(table))]
                    columns = [table.column(name).slice(skipped) for name in wanted]
                    yield Batch(_rows(columns, spec, path, where, texts), kept=kept)

    return Source(count, batches, kinds)


def _is_narrow(kind: Any) -> bool:
    """Whether its values take a few bytes each."""
    from pyarrow import types

    return bool(types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind))


def _check_averages(metadata: Any, wide: Sequence[str], path: Path) -> None:
    """`ScoringError` for columns whose cells are too large on average: Arrow would unpack a whole page of them."""
    first = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            name, size = chunk.path_in_schema, chunk.total_uncompressed_size
            if size > MAX_CELL * group.num_rows and any(f"{name}.".startswith(f"{each}.") for each in wide):
                found = f"found {size:,} bytes in {group.num_rows} rows, expected at most {MAX_CELL:,} in each"
                raise ScoringError(f"{path}: from row {first} on, column {name!r:.80}: {found}")
        first += group.num_rows


def _tables(file: Any, size: int, read: list[str], wide: Sequence[str], path: Path) -> Iterator[Any]:
    """Tables of at most `size` rows; raises `ScoringError` for a cell of a `wide` column that is too large."""
    from pyarrow import Table

    first, parts, at_once = 0, list[Any](), min(size, ROWS_AT_ONCE) if wide else size
    for part in file.iter_batches(at_once, columns=read):
        for name in wide:
            for i in range(len(part)) if part.column(name).nbytes > MAX_CELL else ():
                cell = part.column(name).slice(i, 1)
                taken = (cell.dictionary_decode() if hasattr(cell, "dictionary_decode") else cell).nbytes
                if taken > MAX_CELL:
                    found = f"found a cell of {taken:,} bytes, expected at most {MAX_CELL:,}"
                    raise ScoringError(f"{path}: row {first + i}, column {name!r:.80}: {found}")
        parts.append(part)
        first += len(part)
        if sum(map(len, parts)) > size - at_once:
            yield Table.from_batches(parts)
            parts = []
    if parts:
        yield Table.from_batches(parts)


def _rows(columns: list[Any], spec: InputSpec, path: Path, where: list[str], texts: TextColumn | None) -> Array:
    """Columns of Arrow as the network takes them."""
    if texts is not None:
        return texts.array(_listed(columns[0]), path, where)
    rows = np.stack([_column(column) for column in columns], axis=1)
    return checked_rows(rows.reshape(-1, *spec.shape), spec, path, where)


def _check_types(path: Path, columns: Sequence[tuple[str, Any]]) -> None:
    """Raises `ScoringError` for a column of the network's that holds no numbers, or that has the name of another."""
    from pyarrow import types

    numeric = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
    counts = Counter(name for name, _ in columns)
    for name, kind in columns:
        if not any(is_kind(kind) for is_kind in numeric):
            raise ScoringError(f"{path}: column {name!r:.80}: found {kind!s:.60}, expected numbers")
        if counts[name] > 1:
            raise ScoringError(f"{path}: found several columns {name!r:.80}, expected one of each name")


def _column(column: Any) -> Array:
    """Its numbers; truth values as 0 and 1, decimals as the nearest floating-point numbers, what is missing as NaN."""
    from pyarrow import float64, types

    no_numbers = types.is_decimal(column.type) or types.is_boolean(column.type)
    numbers = column.cast(float64()) if no_numbers else column
    values: Array = numbers.to_numpy(zero_copy_only=False)
    return values


def _listed(column: Any) -> list[Any]:
    """Its values; times of nanoseconds, which Python's have not, as text."""
    from pyarrow import string

    values: list[Any] = (column.cast(string()) if getattr(column.type, "unit", "") == "ns" else column).to_pylist()
    return values


@contextmanager
def _named(path: Path, kind: type[Exception]) -> Iterator[None]:
    """Errors of damaged pages, which show only when they are read, name the file."""
    try:
        yield
    except (kind, OSError) as error:
        raise ScoringError(f"{path}: found a damaged .parquet file ({error!s:.150})") from None


def _kind(arrow: Any) -> type:
    """The type in which a kept column is written; anything but numbers and truth values as text."""
    from pyarrow import types

    if types.is_boolean(arrow):
        return bool
    if types.is_uint64(arrow):  # is written as text: half of its numbers are too large for the others' int64
        return str
    return int if types.is_integer(arrow) else float if types.is_floating(arrow) else str


def _cell(value: Any, kind: type) -> Any:
    """None for what is missing, and for numbers that JSON does not have."""
    if value is None or (kind is float and not math.isfinite(value)):
        return None
    return kind(value)


def _layout(
    header: Sequence[str] | None, spec: InputSpec, path: Path, keep: Sequence[str], texts: TextColumn | None
) -> _Layout:
    """Without feature names, or those of several inputs of one number each, all columns that are not kept are the
    network's entries, in order; of texts, one is."""
    width = 1 if texts is not None else math.prod(spec.shape)
    if header is None:
        return _Layout(width, range(width), {}, has_header=False)
    names = list(header)
    try:
        kept = dict(zip(keep, places_by_name(names, keep, "--keep", f"columns of {path}"), strict=True))
        if texts is not None:
            return _Layout(len(names), [texts.place(names, path)], kept, has_header=True)
        of_parts = [part.name for part in spec.parts or () if part.size == 1]
        wanted = spec.feature_names or (of_parts if len(of_parts) == width and set(of_parts) <= set(names) else None)
        if wanted is not None:
            return _Layout(len(names), places_by_name(names, wanted, str(path)), kept, has_header=True)
    except ValueError as error:
        raise ScoringError(f"{error}{_separator(header)}") from None
    entries = [place for place in range(len(names)) if place not in set(kept.values())]
    if len(entries) != width:
        found = f"found {len(entries)} columns, expected {width} for shape {spec.shape}{_separator(header)}"
        raise ScoringError(f"{path}: {found}")
    return _Layout(len(names), entries, kept, has_header=True)


def _separator(header: Sequence[str]) -> str:
    """A hint where the header's only cell holds another separator than a comma."""
    other = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
    return "" if other is None else f"; the header is separated by {other!r}, expected commas"


def _check_widths(block: list[Line], layout: _Layout, path: Path, first: int) -> None:
    """`ScoringError` for a row of more or fewer columns than the others."""
    for i, (line, row) in enumerate(block):
        if len(row) != layout.width:
            expected = f"{layout.width} as in the header" if layout.has_header else str(layout.width)
            found = f"found {len(row)} columns, expected {expected}{_separator(row)}"
            raise ScoringError(f"{path}: row {first + i} (line {line}): {found}")


def _numbers(block: list[Line], layout: _Layout, spec: InputSpec, path: Path, first: int) -> Array:
    """The cells of a block of rows as numbers, (B, entries); the error names row, line and column."""
    kind = np.int64 if spec.dtype == "int64" else np.float64
    cells = [[TRUTHS.get(row[place], row[place]) for place in layout.entries] for _, row in block]
    try:
        if any("_" in "".join(row) for row in cells):  # Python would read 1_000 as a thousand
            raise ValueError("an underscore")
        numbers: Array = np.array(cells, kind)
    except (ValueError, OverflowError):
        raise _bad_cell(cells, block, kind, spec, path, first) from None
    return numbers


def _bad_cell(
    cells: list[list[str]], block: list[Line], kind: Any, spec: InputSpec, path: Path, first: int
) -> ScoringError:
    what = "a whole number" if kind is np.int64 else "a number"
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            try:
                if "_" in cell:
                    raise ValueError("an underscore")
                np.array(cell, kind)
            except (ValueError, OverflowError):
                column = f"entry [{j}]" if spec.feature_names is None else f"column {spec.feature_names[j]!r:.80}"
                where = f"row {first + i} (line {block[i][0]}), {column}"
                return ScoringError(f"{path}: {where}: found {cell!r:.60}, expected {what}")
    raise AssertionError("unreachable: some cell is no number")


def _is_header(first: list[str], spec: InputSpec, path: Path) -> tuple[bool, bool]:
    """Whether the line is one, and whether the bundle's feature names say so."""
    if first and first == [str(place) for place in range(len(first))]:
        found = f"found the first line {','.join(first):.60}, which is data or the numbers of columns without names"
        raise ScoringError(f"{path}: {found}; expected --header or --no-header, to tell which")
    known = set(map(plain_name, spec.feature_names or ()))
    if not first or (known and known <= set(map(plain_name, first))):
        return bool(first), True
    return not any(map(_is_number, first)), False


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
