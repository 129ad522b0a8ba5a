"""`demur score` and `demur compare` with a progress bar."""

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from demur.service.format.text import printable

from .job import Report
from .rows import Row

ANSWERS = ("label", "labels", "mean")


def with_progress(job: Callable[[Report], int], what: str = "scored") -> int:
    """Run the job, which reports how far it is, with a bar on stderr, and only on a terminal; returns its count."""
    screen = Console(stderr=True)
    shown = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*shown, console=screen, disable=not screen.is_terminal) as progress:
        task = progress.add_task(what)
        return job(lambda done, count: progress.update(task, completed=done, total=count))


def listed(rows: list[Row]) -> list[str]:
    """A line for each: which input, how strange, and what is predicted."""
    return [
        f"{printable(row['file']) if 'file' in row else 'row ' + str(row['row'])}: score {row['score']:.4g}, "
        f"p-value {row['p_value']:.4g}, {printable(str(next(row[name] for name in ANSWERS if name in row)))}"
        for row in rows
    ]
