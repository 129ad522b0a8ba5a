"""Progress in a terminal: a bar for the running stage, with its time to go, and one line for each that has ended.

Only the running stage is drawn, so that it stays visible on a small screen; consecutive stages of the same name are one
line. Where the output is no terminal, only the lines of the ended stages are printed.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from ..runtime.progress import readable_seconds

T = TypeVar("T")
NARROW = 60  # columns: below, there is no room for the bar
NAME_WIDTH = 27
SLOWEST = 3600.0  # seconds of a step, for which a time to go is shown


@dataclass
class _Ended:
    """What is said of a stage: how many steps it took, in how many rounds, and how long."""

    name: str
    steps: int = 0
    rounds: int = 0
    seconds: float = 0.0

    def line(self) -> str:
        steps = f", {self.steps:,} steps" if self.steps > 1 else ""
        rounds = f" in {self.rounds} rounds" if self.rounds > 1 else ""
        return f"  {self.name:<{NAME_WIDTH}}  {readable_seconds(self.seconds)}{steps}{rounds}"


class Bars:
    """A `Track` while the context is open; `say` prints lines for people between the stages."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        # In a terminal, lines are wrapped between words; a log has a line each.
        self._console, self._clock = Console(soft_wrap=not Console().is_terminal), clock
        self._progress = Progress(
            *_columns(self._console.width), console=self._console, transient=True, speed_estimate_period=SLOWEST
        )
        self._ended: _Ended | None = None

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tell()
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print a line below what has ended."""
        self._tell()
        self._console.print(line, highlight=False, markup=False)

    def __call__(self, items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
        if self._ended is not None and self._ended.name != description:
            self._tell()
        ended = self._ended = self._ended or _Ended(description)
        task, start = self._progress.add_task(description, total=total), self._clock()
        try:
            for item in items:
                yield item
                ended.steps += 1
                self._progress.advance(task)
        finally:
            ended.rounds += 1
            ended.seconds += self._clock() - start
            self._progress.remove_task(task)  # stages may be nested: only this one goes

    def _tell(self) -> None:
        """Print the line of the last stage that ended."""
        if self._ended is not None and self._ended.rounds:
            self._console.print(self._ended.line(), highlight=False, markup=False)
        self._ended = None


def _columns(width: int) -> list[ProgressColumn]:
    """Name, bar, steps and time to go; without bar on a narrow screen."""
    name = TextColumn("  {task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
    bar = [] if width < NARROW else [BarColumn(bar_width=16)]
    return [name, *bar, MofNCompleteColumn(), TimeRemainingColumn(compact=True)]
