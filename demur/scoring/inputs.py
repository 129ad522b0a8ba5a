"""Where inputs come from, one batch at a time: arrays and folders of images. Tables are in `tables`."""

import csv
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, AnyStr

import numpy as np
import numpy.typing as npt

from demur.service.bundle import InputSpec
from demur.service.codec.arrays import InputError, array_from_array
from demur.service.codec.decoding import MAX_NPY_HEADER
from demur.service.codec.images import image_to_array
from demur.service.inference.graph import NetworkError
from demur.service.settings import Settings

from .errors import ScoringError

Array = npt.NDArray[Any]
IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})
MAX_CELL = csv.field_size_limit()  # what a table may hold in a cell: characters, or bytes
MAX_PIXELS: int = Settings.model_fields["max_pixels"].default


@dataclass(frozen=True)
class Batch:
    """Inputs (B, *input_shape) as the network takes them; `names` of their files, for images.

    kept: further columns of a table, a value for each input.
    """

    inputs: Array
    names: tuple[str, ...] | None = None
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def cut(self, count: int) -> "Batch":
        """The first `count` inputs."""
        names = None if self.names is None else self.names[:count]
        return Batch(self.inputs[:count], names, {name: cells[:count] for name, cells in self.kept.items()})


@dataclass(frozen=True)
class Source:
    """`count` inputs; `batches(start, size)` are those from `start` on, at most `size` at a time.

    kept: the columns of a table that each batch keeps, and their types. first: the number of the first input in the
    file. note: what was taken for what, where nothing said so.
    """

    count: int
    batches: Callable[[int, int], Iterator[Batch]]
    kept: Mapping[str, type] = field(default_factory=dict)
    first: int = 0
    note: str = ""


def part_of(source: Source, number: int, parts: int) -> Source:
    """The part with this number, from 1, of as many parts of about the same size; raises `ScoringError` for an empty
    one."""
    first, end = ((number - 1) * source.count // parts, number * source.count // parts)
    if first == end:
        raise ScoringError(f"--rows {number}/{parts}: found {source.count} inputs, expected one for each part at least")

    def batches(start: int, size: int) -> Iterator[Batch]:
        left = end - first - start
        for batch in source.batches(first + start, size) if left else ():
            yield batch if len(batch.inputs) <= left else batch.cut(left)
            left -= len(batch.inputs)
            if left <= 0:
                return

    return Source(end - first, batches, source.kept, first, source.note)


def open_array(path: Path, spec: InputSpec) -> Source:
    """An .npy file (n, *input_shape), or of one example, mapped into memory rather than read."""
    count = len(_mapped(path, spec))

    def batches(start: int, size: int) -> Iterator[Batch]:
        for first in range(start, count, size):
            # Mapped anew for each batch: the pages of a mapping count as the process's memory once they were read.
            rows = _mapped(path, spec)[first : first + size]
            yield Batch(checked_rows(rows, spec, path, [f"row {first + i}" for i in range(len(rows))]))

    return Source(count, batches)


def _mapped(path: Path, spec: InputSpec) -> Array:
    """The array (n, *input_shape) in the file."""
    try:
        mapped: Array = np.lib.format.open_memmap(path, mode="r", max_header_size=MAX_NPY_HEADER)
    except Exception as error:  # NumPy parses the header with Python's own parser, which raises many kinds
        reason = f"{' '.join(str(error).split()):.150}" or type(error).__name__
        raise ScoringError(f"{path}: found no .npy file ({reason}), expected what numpy.save writes") from None
    array = mapped[None] if mapped.shape == spec.shape else mapped
    if array.shape[1:] != spec.shape or not len(array):
        expected = f"({', '.join(map(str, ('n', *spec.shape)))})"
        raise ScoringError(f"{path}: found shape {mapped.shape}, expected {expected} of at least one example")
    return array


def open_images(folder: Path, spec: InputSpec) -> Source:
    """The PNG, JPEG and WebP files of a folder, in the order of their names, decoded as the service does."""
    if spec.image is None:
        raise ScoringError(f"{folder}: found a folder, expected a file: the bundle takes arrays, not images")
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
    if not files:
        raise ScoringError(f"{folder}: found no image, expected files that end in {', '.join(sorted(IMAGE_SUFFIXES))}")

    def batches(start: int, size: int) -> Iterator[Batch]:
        for first in range(start, len(files), size):
            chosen = files[first : first + size]
            decoded = [image_to_array(file.read_bytes(), spec, MAX_PIXELS, str(file)) for file in chosen]
            names = tuple(os.fsencode(file.name).decode(errors="backslashreplace") for file in chosen)
            yield Batch(np.stack(decoded), names)

    return Source(len(files), batches)


def bounded_lines(file: IO[AnyStr], spec: InputSpec, path: Path) -> Iterator[AnyStr]:
    """The lines of the file; raises `ScoringError` for one that is longer than an example and much beside it, before it
    is read whole."""
    most, number = 2**22 + 32 * math.prod(spec.shape), 0  # a number has 24 characters at most
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise ScoringError(f"{path}: line {number}: found more than {most:,} characters, expected an example")
        yield line


def checked_rows(rows: Array, spec: InputSpec, path: Path, where: Sequence[str]) -> Array:
    """The rows as the network takes them; raises `ScoringError` that says of the first bad one `where` it is."""
    try:
        return array_from_array(np.asarray(rows), spec, len(rows), "rows")
    except InputError as error:
        if not error.field.startswith("rows["):
            raise ScoringError(f"{path}: found {error.found}, expected {error.expected}") from None
        row, _, entry = error.field.removeprefix("rows[").partition("]")
        place = f"{where[int(row)]}, {_column_of(entry, spec)}" if entry else where[int(row)]
        raise ScoringError(f"{path}: {place}: found {error.found}, expected {error.expected}") from None


def refused_by_network(error: NetworkError, batch: Batch, spec: InputSpec, path: Path, first: int) -> ScoringError:
    """The error with the file, the row and the column of the value, as far as they are known; first: the number of the
    batch's first input."""
    told = error.problem + (f", expected {error.expected}" if error.expected else "")
    if error.place is None:
        return ScoringError(f"{path}: rows {first} to {first + len(batch.inputs) - 1}: {told}")
    row, *entry = error.place
    where = f"row {first + row}" if batch.names is None else batch.names[row]
    if entry:
        where += f", {_column_of(''.join(f'[{number}]' for number in entry), spec)}"
    return ScoringError(f"{path}: {where}: {told}")


def _column_of(entry: str, spec: InputSpec) -> str:
    """The column of an entry such as "[3]", by its name where it has one."""
    names = spec.feature_names
    return f"entry {entry}" if names is None else f"column {names[int(entry[1:-1])]!r:.80}"
