"""`demur score` and `demur compare` with a progress bar."""

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from demur.service.format.text import printable

from .job import Report
from .rows import Row

ANSWERS = ("label", "mean", "labels")  # a table's own column may be called `labels`, and be kept


def with_progress(job: Callable[[Report], int], what: str = "scored") -> int:
    """Run the job, which reports how far it is, with a bar on stderr, and only on a terminal; returns its count."""
    screen = Console(stderr=True)
    shown = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*shown, console=screen, disable=not screen.is_terminal) as progress:
        task = progress.add_task(what)
        return job(lambda done, count: progress.update(task, completed=done, total=count))


def listed(row: Row) -> str:
    """A line: which input, its score, and what is predicted, with four digits."""
    answer = next(row[name] for name in ANSWERS if name in row)
    each = answer if isinstance(answer, list) else [answer]
    shown = ", ".join(f"{one:.4g}" if isinstance(one, float) else str(one) for one in each)
    name, verdict = row.get("file", f"row {row['row']}"), ", rejected" if row["rejected"] else ""
    return printable(f"{name}: score {row['score']:.4g}, p-value {row['p_value']:.4g}{verdict}: {shown}")
