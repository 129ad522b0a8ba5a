"""`python -m benchmarks`: list the benchmarks; `python -m benchmarks NAME [--quick]`: run one of them, or "all"."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.core.artefacts import ArtefactCache
from benchmarks.core.environment import environment
from benchmarks.core.folders import RESULTS
from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Benchmark, Settings, Values, write_json
from benchmarks.registry import ALL, BENCHMARKS, select
from probity.offline.recipes.progress_bars import Bars
from probity.offline.runtime.progress import silent
from probity.service.environment.cpu import available_cpus


def main(
    name: Annotated[str | None, typer.Argument(help="a benchmark, or 'all' of those for a CPU")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="miniatures: does it work? Its numbers mean nothing")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="the paper's experiments: the size for two cores")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="threads of each process; by default, all cores")] = None,
    out: Annotated[Path | None, typer.Option(help="where results go; by default benchmarks/results")] = None,
    rows: Annotated[
        str, typer.Option(help="measure these bundles, layers, data sets or methods (without commas) only")
    ] = "",
    seeds: Annotated[int | None, typer.Option(min=1, help="experiments: networks of each kind")] = None,
) -> None:
    """Run benchmarks, each measurement in a process of its own; write results/NAME.json and, for some, NAME.png."""
    screen = Console()
    if name is None:
        show_list(screen)
        return
    chosen = choose(name)
    if fast and (without := [benchmark.name for benchmark in chosen if not benchmark.fast]):
        raise typer.BadParameter(f"--fast: {', '.join(without)} has one size only; leave --fast out")
    only = tuple(filter(None, rows.split(",")))
    folder = out or (RESULTS / "quick" if quick else RESULTS)
    cores = threads or available_cpus()
    with tempfile.TemporaryDirectory() as scratch:
        artefacts = ArtefactCache(Path(scratch), cores)
        settings = Settings(quick, cores, Path(scratch), artefacts, silent, folder, only, seeds, fast)
        try:
            for benchmark in chosen:
                run_one(benchmark, settings, screen)
        except MeasurementError as error:
            screen.print(f"[bold red]{benchmark.name}[/]: {escape(str(error))}")
            raise typer.Exit(1) from None


def show_list(screen: Console) -> None:
    table = Table("name", "what it measures", title="python -m benchmarks NAME [--quick]")
    for benchmark in BENCHMARKS:
        table.add_row(benchmark.name, benchmark.summary)
    left_out = [f"{benchmark.name} ({benchmark.needs})" for benchmark in BENCHMARKS if benchmark.needs]
    table.add_row(ALL, f"all but {', '.join(left_out)}")
    screen.print(table)


def choose(name: str) -> list[Benchmark]:
    try:
        return select(name)
    except KeyError:
        known = [benchmark.name for benchmark in BENCHMARKS]
        raise typer.BadParameter(f"found {name!r}, expected one of {', '.join([*known, ALL])}") from None


def run_one(benchmark: Benchmark, settings: Settings, screen: Console) -> None:
    start = time.monotonic()
    with Bars() as track:
        result = benchmark.run(replace(settings, track=track))
    measured_with = environment(benchmark.threads or settings.threads)
    record: Values = {"benchmark": benchmark.file, "quick": settings.quick, "environment": measured_with}
    record |= {"fast": settings.fast} if benchmark.fast else {}
    seconds = time.monotonic() - start
    record |= {"seconds_in_all": seconds, **result}
    file = settings.out / f"{settings.name_of(benchmark.file)}.json"
    write_json(file, record)
    if benchmark.draw is not None:
        benchmark.draw(record, file.with_suffix(".png"))
    screen.print(f"{benchmark.name}: {seconds:.0f} s, written to {file}", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
