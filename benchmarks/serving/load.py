"""Saturation of the service against what it cannot be faster than, and latencies at half of that load.

Examples a second are compared with the served graph in a bare onnxruntime session, and with the plain network in one;
requests a second with a FastAPI route that computes nothing (`benchmarks.serving.empty_server`).
"""

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.core.harness import Process, batches_for, steady_seconds, warm_up
from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import INFER, Request, binary, images
from benchmarks.serving.fitted import bundle
from benchmarks.serving.openloop import Kind, play, poisson
from benchmarks.serving.process import ServerProcess, demur, free_port, started
from benchmarks.serving.wrk import saturate

SIZES, BATCHES = (1, 8, 32), (1, 2, 4, 8, 16, 32, 64)
BASELINES = {"session": "benchmarks.serving.bare:Session", "plain": "benchmarks.serving.bare:Plain"}
BASELINE_STEPS = 5  # a baseline's turn lasts so many times `LEAST_SECONDS`
SEED = 0
QUIET = {"DEMUR_ACCESS_LOG": "false"}


def run(settings: Settings) -> Values:
    """Each server is one process with the service's defaults, but no access log; what is compared takes turns."""
    folder, scratch = bundle(), settings.scratch
    log = scratch / "service.log"
    requests = [binary(rows) for rows in SIZES] + [images(rows) for rows in SIZES]
    with demur(folder, log, requests[0], settings.threads, **QUIET) as server:
        saturation = saturations(settings, server, folder, requests)
        capacity = {request.name: median_rate(saturation["rounds"], request.name) for request in requests}
        chosen = [requests[0], requests[1], requests[3]]
        half = [
            half_load(settings, server, request, capacity[request.name] / 2)
            for request in settings.track(chosen, "Half load", len(chosen))
        ]
    return {"saturation": saturation, "half_load": half}


def saturations(settings: Settings, server: ServerProcess, folder: Path, requests: Sequence[Request]) -> Values:
    """Rounds in which the baselines and every form of request have one turn each.

    Every form of binary request has another turn with the route that computes nothing.
    """
    seconds, count = settings.choose(6, 1), settings.choose(5, 1)
    with ExitStack() as stack:
        baselines = {base.name: base for base in baselines_of(folder, settings.threads, stack)}
        swept = {name: best_batch(base) for name, base in baselines.items()}
        measured = [request for request in requests if request.path == INFER]
        empty = stack.enter_context(empty_route(server, measured, settings.scratch))
        for used in (server, empty):  # first use
            saturate(used, requests[0], 1, settings.scratch)
        rounds = []
        for _ in settings.track(range(count), "Saturation", count):
            rates = {name: baseline_rate(base, swept[name]["best"]) for name, base in baselines.items()}
            turns = {request.name: saturate(server, request, seconds, settings.scratch) for request in requests}
            emptied = {request.name: saturate(empty, request, seconds, settings.scratch) for request in measured}
            found = {"requests": turns, "empty_route": emptied}
            as_json = {what: {name: turn.as_json() for name, turn in of.items()} for what, of in found.items()}
            rounds.append({"baselines": rates, **as_json})
    ratios = {request.name: ratio(rounds, request.name) for request in requests}
    return {"batch_sizes": swept, "rounds": rounds, "ratios": ratios}


@contextmanager
def empty_route(server: ServerProcess, requests: Sequence[Request], scratch: Path) -> Iterator[ServerProcess]:
    """A route that reads these requests and answers with as many bytes as `server` does, computing nothing."""
    lengths = {len(request.body): len(server.ask(request)[1]) for request in requests}
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.serving.empty_server", str(port), json.dumps(lengths)]
    with started(command, QUIET, port, scratch / "empty.log") as empty:
        empty.wait_until_answered(requests[0])
        yield empty


@dataclass(frozen=True)
class Baseline:
    """A process in which `callers` batches are computed at the same time."""

    name: str
    process: Process
    callers: int


def baselines_of(folder: Path, threads: int, stack: ExitStack) -> Iterator[Baseline]:
    """One batch by all threads, and side by side as many batches as there are threads, by one each."""
    for what, target in BASELINES.items():
        for callers, each in sorted({(1, threads), (threads, 1)}):
            values = {"bundle": str(folder), "callers": callers}
            name = f"{what}, {callers} x {each} threads"
            yield Baseline(name, stack.enter_context(Process(target, values, each)), callers)


def best_batch(base: Baseline) -> Values:
    """Seconds an example at each batch size, and the size with the least."""
    seconds = {batch: steady_seconds(base.process, batch) / base.callers for batch in BATCHES}
    return {"seconds_per_example": seconds, "best": min(seconds, key=seconds.__getitem__)}


def baseline_rate(base: Baseline, batch: int) -> float:
    """Examples a second over about as long as a turn of the load."""
    count = BASELINE_STEPS * batches_for(warm_up(base.process, batch))
    seconds: float = base.process.ask("step", batch=batch, batches=count)["seconds"]
    return base.callers * batch * count / seconds


def ratio(rounds: Sequence[Values], name: str) -> Values:
    """The service's examples a second over those of the same round's faster bare session (and that of the plain
    network), and its requests a second over those of the empty route: medians."""
    speed = statistics.median(turn["requests"][name]["examples_per_second"] for turn in rounds)
    found: Values = {"examples_per_second": speed} | {
        f"of_{what}": statistics.median(
            turn["requests"][name]["examples_per_second"] / fastest(turn["baselines"], what) for turn in rounds
        )
        for what in BASELINES
    }
    if name not in rounds[0]["empty_route"]:
        return found
    of_empty_route = statistics.median(
        turn["requests"][name]["requests_per_second"] / turn["empty_route"][name]["requests_per_second"]
        for turn in rounds
    )
    return found | {"of_empty_route": of_empty_route}


def fastest(rates: Values, what: str) -> float:
    return max(float(rate) for name, rate in rates.items() if name.startswith(what))


def median_rate(rounds: Sequence[Values], name: str) -> float:
    return float(statistics.median(turn["requests"][name]["requests_per_second"] for turn in rounds))


def half_load(settings: Settings, server: ServerProcess, request: Request, rate: float) -> Values:
    """Latencies at half of what this form of request was answered at most."""
    outcomes = play(server.port, poisson([Kind.of(request)], rate, settings.choose(60, 3), SEED))
    return {"request": request.name, "rate": rate, **outcomes.as_json()}
