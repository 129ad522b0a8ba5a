"""`python -m benchmarks`: list the benchmarks; `python -m benchmarks NAME [--quick]`: run one of them, or "all"."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import bundles, cost, floor, fuzz, gpu, growth, layers, peer, pictures
from benchmarks.artefacts import Shelf
from benchmarks.environment import environment
from benchmarks.harness import MeasurementError
from benchmarks.serving import contract, load, peers, soak
from benchmarks.serving import pictures as serving_pictures
from benchmarks.settings import Benchmark, Settings, Values, write_json
from offline.recipes.progress_bars import Bars
from service.environment.cpu import available_cpus

RESULTS = Path(__file__).parent / "results"
BENCHMARKS = (
    Benchmark("peer", "fit and predict against laplace-torch: seconds an example, memory", peer.run, pictures.races),
    Benchmark("floor", "Jacobian time over forward time, against 1 + 2 K", floor.run, pictures.floor),
    Benchmark("growth", "time and memory of the fit against S, N and D", growth.run, pictures.growth),
    Benchmark("cost", "ResNet-18 and 50,000 examples: seconds of each stage, extrapolated", cost.run),
    Benchmark("bundles", "every network at full size: fit, bundle, verification, prediction", bundles.run),
    Benchmark("layers", "every layer of torch.nn alone: exported and compared, or refused and why", layers.run),
    Benchmark("fuzz", "a million damaged requests and bundle files: no crash, no hang, little memory", fuzz.run),
    Benchmark("contract", "thousands of requests by schemathesis: every answer is as the API promises", contract.run),
    Benchmark("gpu", "ResNet-18, 60,000 examples, S = 42,438, selection to bundle; needs cuda", gpu.run),
    Benchmark(
        "load",
        "the service at saturation, at half load and at three times its capacity",
        load.run,
        serving_pictures.load,
    ),
    Benchmark(
        "peers",
        "the service and LitServe, BentoML, MLServer, FastAPI around the same predictor",
        peers.run,
        serving_pictures.peers,
    ),
    Benchmark(
        "soak",
        "ten minutes at 80 % of capacity: vanishing clients, bad requests, replaced bundles",
        soak.run,
        serving_pictures.soak,
    ),
)
ALL = "all"
UNREPORTED = ("gpu",)  # what "all" leaves out: it needs another machine


def main(
    name: Annotated[str | None, typer.Argument(help="a benchmark, or 'all' of those for a CPU")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="miniatures: does it work? Its numbers mean nothing")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="threads of each process; by default, all cores")] = None,
    out: Annotated[Path | None, typer.Option(help="where results go; by default benchmarks/results")] = None,
    rows: Annotated[str, typer.Option(help="bundles, layers: measure these again, as in --rows SiLU,GELU")] = "",
) -> None:
    """Run benchmarks, each measurement in a process of its own; write results/NAME.json and, for some, NAME.png."""
    screen = Console()
    if name is None:
        show_list(screen)
        return
    chosen = choose(name)
    only = tuple(filter(None, rows.split(",")))
    folder = out or (RESULTS / "quick" if quick else RESULTS)
    cores = threads or available_cpus()
    with tempfile.TemporaryDirectory() as scratch:
        shelf = Shelf(Path(scratch), cores)
        try:
            for benchmark in chosen:
                run_one(benchmark, quick, cores, shelf, folder, screen, only)
        except MeasurementError as error:
            screen.print(f"[bold red]{benchmark.name}[/]: {escape(str(error))}")
            raise typer.Exit(1) from None


def show_list(screen: Console) -> None:
    table = Table("name", "what it measures", title="python -m benchmarks NAME [--quick]")
    for benchmark in BENCHMARKS:
        table.add_row(benchmark.name, benchmark.summary)
    table.add_row(ALL, f"all but {', '.join(UNREPORTED)}")
    screen.print(table)


def choose(name: str) -> list[Benchmark]:
    known = {benchmark.name: benchmark for benchmark in BENCHMARKS}
    if name == ALL:
        return [benchmark for benchmark in BENCHMARKS if benchmark.name not in UNREPORTED]
    if name not in known:
        raise typer.BadParameter(f"found {name!r}, expected one of {', '.join([*known, ALL])}")
    return [known[name]]


def run_one(
    benchmark: Benchmark,
    quick: bool,
    threads: int,
    shelf: Shelf,
    folder: Path,
    screen: Console,
    rows: tuple[str, ...],
) -> None:
    start = time.monotonic()
    with Bars() as track:
        result = benchmark.run(Settings(quick, threads, shelf, track, folder, rows))
    record: Values = {"benchmark": benchmark.name, "quick": quick, "environment": environment(threads)}
    seconds = time.monotonic() - start
    record |= {"seconds_in_all": seconds, **result}
    write_json(folder / f"{benchmark.name}.json", record)
    if benchmark.draw is not None:
        benchmark.draw(record, folder / f"{benchmark.name}.png")
    screen.print(f"{benchmark.name}: {seconds:.0f} s, written to {folder / benchmark.name}.json", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
