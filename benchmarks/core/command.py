"""What `python -m benchmarks` and `python -m paper` share: the list of what there is, and a run."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.core.environment import environment
from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Benchmark, Settings, Values, write_json
from probity.offline.recipes.progress_bars import Bars
from probity.offline.runtime.progress import silent
from probity.service.environment.cpu import available_cpus


@dataclass(frozen=True)
class Program:
    """A package with benchmarks, run as `python -m name`; `results` is where they go by default."""

    name: str
    benchmarks: Sequence[Benchmark]
    results: Path

    def show_list(self, screen: Console, *more: tuple[str, str]) -> None:
        """Every benchmark, and the other names that the program takes."""
        table = Table("name", "what it measures", title=f"python -m {self.name} NAME [--quick]")
        for benchmark in self.benchmarks:
            table.add_row(benchmark.name, benchmark.summary)
        for name, summary in more:
            table.add_row(name, summary)
        screen.print(table)

    def unknown(self, name: str, *more: str) -> typer.BadParameter:
        """What to raise for a name that is none of these."""
        known = [benchmark.name for benchmark in self.benchmarks]
        return typer.BadParameter(f"found {name!r}, expected one of {', '.join([*known, *more])}")

    def run(
        self,
        chosen: Sequence[Benchmark],
        screen: Console,
        *,
        quick: bool,
        fast: bool = False,
        threads: int | None,
        out: Path | None,
        rows: str,
        seeds: int | None,
    ) -> None:
        """Run one after the other; the first that cannot measure ends it with status 1."""
        only = tuple(filter(None, rows.split(",")))
        folder = out or (self.results / "quick" if quick else self.results)
        cores = threads or available_cpus()
        with tempfile.TemporaryDirectory() as scratch:
            settings = Settings(quick, cores, Path(scratch), silent, folder, only, seeds, fast)
            for benchmark in chosen:
                try:
                    self._run_one(benchmark, settings, screen)
                except MeasurementError as error:
                    screen.print(f"[bold red]{benchmark.name}[/]: {escape(str(error))}")
                    raise typer.Exit(1) from None

    def _run_one(self, benchmark: Benchmark, settings: Settings, screen: Console) -> None:
        start = time.monotonic()
        with Bars() as track:
            result = benchmark.run(replace(settings, track=track))
        measured_with = environment(self.name, benchmark.threads or settings.threads)
        record: Values = {"benchmark": benchmark.name, "quick": settings.quick, "environment": measured_with}
        record |= {"fast": settings.fast} if benchmark.fast else {}
        seconds = time.monotonic() - start
        record |= {"seconds_in_all": seconds, **result}
        file = settings.out / f"{settings.name_of(benchmark.name)}.json"
        write_json(file, record)
        if benchmark.draw is not None:
            benchmark.draw(record, file.with_suffix(".png"))
        screen.print(f"{benchmark.name}: {seconds:.0f} s, written to {file}", soft_wrap=True)
