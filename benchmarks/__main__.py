"""`python -m benchmarks`: list the benchmarks; `python -m benchmarks NAME [--quick]`: run one of them, or "all"."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.core.command import Program
from benchmarks.core.folders import RESULTS
from benchmarks.registry import ALL, BENCHMARKS, select

PROGRAM = Program("benchmarks", BENCHMARKS, RESULTS)


def main(
    name: Annotated[str | None, typer.Argument(help="a benchmark, or 'all' of those for a CPU")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="miniatures: does it work? Its numbers mean nothing")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="threads of each process; by default, all cores")] = None,
    out: Annotated[Path | None, typer.Option(help="where results go; by default benchmarks/results")] = None,
    rows: Annotated[str, typer.Option(help="measure these bundles, data sets or methods (without commas) only")] = "",
    seeds: Annotated[int | None, typer.Option(min=1, help="experiments: networks of each kind")] = None,
) -> None:
    """Run benchmarks, each measurement in a process of its own; write results/NAME.json and, for some, NAME.png."""
    screen = Console()
    if name is None:
        left_out = [f"{benchmark.name} ({benchmark.needs})" for benchmark in BENCHMARKS if benchmark.needs]
        PROGRAM.show_list(screen, (ALL, f"all but {', '.join(left_out)}"))
        return
    try:
        chosen = select(name)
    except KeyError:
        raise PROGRAM.unknown(name, ALL) from None
    PROGRAM.run(chosen, screen, quick=quick, threads=threads, out=out, rows=rows, seeds=seeds)


if __name__ == "__main__":
    typer.run(main)
