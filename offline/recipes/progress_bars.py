"""Progress in a terminal: the whole job and the running stage with a bar each, and one line for each stage that has
ended.

Only the running stage is drawn, so that it stays visible on a small screen; consecutive stages of the same name are one
line. Where the output is no terminal, only the lines of the ended stages are printed.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from ..runtime.progress import readable_seconds
from .whole_job import WholeJob

T = TypeVar("T")
NARROW = 60  # columns: below, there is no room for the bar and the rate
NAME_WIDTH = 27
WHOLE = "The whole fit"


class Count(ProgressColumn):
    """Steps done and in all; of the whole job, its share in percent."""

    def render(self, task: Task) -> Text:
        if task.description == WHOLE:
            return Text(f"{task.completed:.0f} %")
        return Text(f"{task.completed:,.0f}/{'?' if task.total is None else f'{task.total:,.0f}'}")


class Rate(ProgressColumn):
    """Steps a second."""

    def render(self, task: Task) -> Text:
        speed = None if task.description == WHOLE else task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g}/s" if speed >= 1 else f"{1 / speed:.3g} s each")


class Left(ProgressColumn):
    """The time that is left."""

    def render(self, task: Task) -> Text:
        seconds = task.fields.get("left", task.time_remaining)
        if seconds is None:
            return Text("")
        return Text(f"{'' if task.fields.get('known', True) else 'over '}{readable_seconds(seconds)} left")


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
    """A `Track` of the whole job while the context is open; `say` prints lines for people between the stages."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        # In a terminal, lines are wrapped between words; a log has a line each.
        self._console, self._clock = Console(soft_wrap=not Console().is_terminal), clock
        self._progress = Progress(*_columns(self._console.width), console=self._console, transient=True)
        self._ended: _Ended | None = None
        self._whole: WholeJob | None = None
        self._whole_task: TaskID | None = None

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

    def expect(self, seconds: Mapping[str, float | None]) -> None:
        """From now on, the bar of the whole job is shown too."""
        self._whole = WholeJob(seconds, self._clock)
        self._whole_task = self._progress.add_task(WHOLE, total=100.0)
        self._show_whole(None)

    def enter(self, part: str) -> None:
        """Begin a part of the whole job."""
        if self._whole is not None:
            self._whole.enter(part)
            self._show_whole(None)

    def __call__(self, items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
        if self._ended is not None and self._ended.name != description:
            self._tell()
        ended = self._ended = self._ended or _Ended(description)
        task, start = self._progress.add_task(description, total=total), self._clock()
        done = 0
        try:
            for item in items:
                yield item
                done, ended.steps = done + 1, ended.steps + 1
                self._progress.advance(task)
                self._show_whole(None if total is None else (self._clock() - start) * (total - done) / done)
        finally:
            ended.rounds += 1
            ended.seconds += self._clock() - start
            self._remove(task)

    def _show_whole(self, stage_left: float | None) -> None:
        if self._whole is not None and self._whole_task is not None:
            self._whole.stage_left = stage_left or 0.0
            whole = self._whole
            self._progress.update(self._whole_task, completed=100 * whole.share, left=whole.left, known=whole.known)

    def _remove(self, task: TaskID) -> None:
        """Stages may be nested: only this one goes."""
        if task in self._progress.task_ids:
            self._progress.remove_task(task)

    def _tell(self) -> None:
        """Print the line of the last stage that ended."""
        if self._ended is not None and self._ended.rounds:
            self._console.print(self._ended.line(), highlight=False, markup=False)
        self._ended = None


def _columns(width: int) -> list[ProgressColumn]:
    """Name, bar, steps, rate and remaining time; without bar and rate on a narrow screen."""
    name = TextColumn("  {task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
    if width < NARROW:
        return [name, Count(), Left()]
    return [name, BarColumn(bar_width=16), Count(), Rate(), Left()]
