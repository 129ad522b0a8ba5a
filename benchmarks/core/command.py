"""What `python -m benchmarks` and `python -m paper` share: the list of what there is, and a run."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.core.environment import environment
from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Benchmark, Settings, Values, write_json
from demur.offline.recipes.progress_bars import Bars
from demur.offline.runtime.progress import silent
from demur.service.environment.cpu import available_cpus

ALL = "all"


@dataclass(frozen=True)
class Program:
    """A package with benchmarks, run as `python -m name`; `results` is where they go by default.

    more: other names that it takes -> what they do, and the function that does it.
    """

    name: str
    benchmarks: Sequence[Benchmark]
    results: Path
    more: Mapping[str, tuple[str, Callable[[], None]]] = field(default_factory=dict)

    def main(
        self,
        name: Annotated[str | None, typer.Argument(help="one of the names; without it, they are listed")] = None,
        quick: Annotated[bool, typer.Option("--quick", help="miniatures: does it work? Numbers mean nothing")] = False,
        fast: Annotated[bool, typer.Option("--fast", help="the paper's experiments: the size for two cores")] = False,
        threads: Annotated[int | None, typer.Option(min=1, help="threads of a process; by default, all cores")] = None,
        out: Annotated[Path | None, typer.Option(help="where results go; by default the package's results/")] = None,
        rows: Annotated[str, typer.Option(help="measure these data sets or methods (without commas) only")] = "",
        seeds: Annotated[int | None, typer.Option(min=1, help="experiments: networks of each kind")] = None,
    ) -> None:
        """Run benchmarks, each measurement in a process of its own; write NAME.json and, for some, NAME.png."""
        screen = Console()
        if name is None:
            self._show_list(screen)
            return
        if name in self.more:
            self.more[name][1]()
            return
        if not (chosen := self.select(name)):
            known = [*(benchmark.name for benchmark in self.benchmarks), *self.more, ALL]
            raise typer.BadParameter(f"found {name!r}, expected one of {', '.join(known)}")
        if fast and not all(benchmark.fast for benchmark in chosen):
            raise typer.BadParameter(f"--fast: {name} has one size only; leave --fast out")
        folder = out or (self.results / "quick" if quick else self.results)
        with tempfile.TemporaryDirectory() as scratch:
            only = tuple(filter(None, rows.split(",")))
            cores = threads or available_cpus()
            settings = Settings(quick, cores, Path(scratch), silent, folder, only, seeds, fast)
            for benchmark in chosen:
                self._run(benchmark, settings, screen)

    def select(self, name: str) -> list[Benchmark]:
        """The benchmark called `name`, or those that `all` runs; [] for an unknown name."""
        if name == ALL:
            return [benchmark for benchmark in self.benchmarks if not benchmark.needs]
        return [benchmark for benchmark in self.benchmarks if benchmark.name == name]

    def _show_list(self, screen: Console) -> None:
        table = Table("name", "what it measures", title=f"python -m {self.name} NAME [--quick]")
        for benchmark in self.benchmarks:
            table.add_row(benchmark.name, benchmark.summary)
        for name, (summary, _) in self.more.items():
            table.add_row(name, summary)
        left_out = [f"{benchmark.name} ({benchmark.needs})" for benchmark in self.benchmarks if benchmark.needs]
        if len(left_out) < len(self.benchmarks):
            table.add_row(ALL, f"all but {', '.join(left_out)}")
        screen.print(table)

    def _run(self, benchmark: Benchmark, settings: Settings, screen: Console) -> None:
        """One that cannot measure ends the program with status 1."""
        start = time.monotonic()
        try:
            with Bars() as track:
                result = benchmark.run(replace(settings, track=track))
        except MeasurementError as error:
            screen.print(f"[bold red]{benchmark.name}[/]: {escape(str(error))}")
            raise typer.Exit(1) from None
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
