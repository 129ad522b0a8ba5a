"""`python -m paper`: list the experiments; `python -m paper NAME [--fast]`: run one; `page`: write the page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.core.command import Program
from paper.page.page import write
from paper.page.results import RESULTS
from paper.registry import EXPERIMENTS

PAGE = "page"
PROGRAM = Program("paper", EXPERIMENTS, RESULTS)


def main(
    name: Annotated[str | None, typer.Argument(help="an experiment, or 'page'")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="miniatures: does it work? Its numbers mean nothing")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="the size for two cores")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="threads of each process; by default, all cores")] = None,
    out: Annotated[Path | None, typer.Option(help="where results go; by default paper/results")] = None,
    rows: Annotated[str, typer.Option(help="measure these data sets or methods (without commas) only")] = "",
    seeds: Annotated[int | None, typer.Option(min=1, help="networks of each kind")] = None,
) -> None:
    """Run an experiment, and write results/NAME.json and NAME.png; or write docs/paper.md from the results."""
    screen = Console()
    if name is None:
        PROGRAM.show_list(screen, (PAGE, "writes docs/paper.md and the tables behind it from the results"))
        return
    if name == PAGE:
        write()
        return
    chosen = [experiment for experiment in EXPERIMENTS if experiment.name == name]
    if not chosen:
        raise PROGRAM.unknown(name, PAGE)
    if fast and not chosen[0].fast:
        raise typer.BadParameter(f"--fast: {name} has one size only; leave --fast out")
    PROGRAM.run(chosen, screen, quick=quick, fast=fast, threads=threads, out=out, rows=rows, seeds=seeds)


if __name__ == "__main__":
    typer.run(main)
