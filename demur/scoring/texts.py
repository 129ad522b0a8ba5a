"""Texts from files: a column of a table, or the lines of a .txt file, read by the bundle's tokenizer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from demur.service.bundle import InputSpec
from demur.service.inference.texts import TextError, TextReader

from .errors import ScoringError
from .inputs import Array, Batch, Source, bounded_lines

COLUMN = "text"


@dataclass
class TextColumn:
    """What makes inputs of the texts of a file: the tokenizer of a bundle, and its input spec. cut: how many texts had
    more tokens than the network takes."""

    reader: TextReader
    spec: InputSpec
    cut: int = 0

    def place(self, header: Sequence[str], path: Path) -> int:
        """Where the column of texts is; raises `ScoringError` without one."""
        names = [name.strip() for name in header]
        if names.count(COLUMN) != 1:
            raise ScoringError(
                f"{path}: found the columns {', '.join(names)!s:.150}, expected one called {COLUMN!r}; of a file with "
                "texts alone and no header, give --no-header"
            )
        return names.index(COLUMN)

    def array(self, texts: Sequence[object], path: Path, where: Sequence[str]) -> Array:
        """As the network takes them; raises `ScoringError` that says of the first bad one `where` it is."""
        try:
            tokens = self.reader.read(texts, "")  # type: ignore[arg-type]
        except TextError as error:
            place = where[int(error.field[1:-1])]
            raise ScoringError(f"{path}: {place}: found {error.found}, expected {error.expected}") from None
        self.cut += int(tokens.cut.sum())
        return tokens.array(self.spec)

    @property
    def text(self) -> str:
        """One sentence on what was cut."""
        return f"{self.cut:,} texts have more than the {self.reader.most} tokens that the network takes: cut"


def open_lines(path: Path, column: TextColumn) -> Source:
    """A .txt file in UTF-8: a text a line, an empty one too."""
    try:
        count = sum(1 for _ in _lines(path, column.spec))
    except UnicodeDecodeError as error:
        raise ScoringError(f"{path}: found no text in UTF-8 ({error})") from None
    if not count:
        raise ScoringError(f"{path}: found no text, expected one a line")

    def batches(start: int, size: int) -> Iterator[Batch]:
        rest = islice(_lines(path, column.spec), start, None)
        first = start
        while block := list(islice(rest, size)):
            where = [f"row {first + i} (line {number})" for i, (number, _) in enumerate(block)]
            yield Batch(column.array([line for _, line in block], path, where))
            first += len(block)

    return Source(count, batches)


def _lines(path: Path, spec: InputSpec) -> Iterator[tuple[int, str]]:
    """Lines without their ends, and their numbers from 1."""
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(bounded_lines(file, spec, path), start=1):
            yield number, line.rstrip("\r\n")
