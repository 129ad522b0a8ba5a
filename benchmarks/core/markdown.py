"""Tables as the pages have them, in Markdown, and in full, as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence

Cell = str | int | float | None


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, its first column to the left."""
    lines = [f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def number(value: float, digits: int = 2) -> str:
    """With so many decimals, and no minus zero."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float, digits: int = 2) -> str:
    """With its sign."""
    text = number(value, digits)
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"


def percent(share: float) -> str:
    """Whole percent."""
    return f"{100 * share:.0f} %"


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def as_csv(rows: Sequence[dict[str, Cell]]) -> str:
    """A line of names and a line a row, with five digits; the rows have the same keys."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()})
    return stream.getvalue()
