"""What early rejection in the HTTP parser is worth: goodput at three times the capacity, with and without it."""

import contextlib
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import Request, binary
from benchmarks.serving.early_rejection_server import WITH, WITHOUT
from benchmarks.serving.fitted import bundle
from benchmarks.serving.load import OVERLOAD, OVERLOAD_ROWS, QUEUE_SECONDS, QUIET, offer_three_times
from benchmarks.serving.process import ServerProcess, free_port, started
from benchmarks.serving.wrk import ROWS_IN_FLIGHT, saturate
from probity.service.environment.cpu import available_cpus

VARIANTS = (WITH, WITHOUT)


def run(settings: Settings) -> Values:
    """For each size of a request, rounds in which both servers have one turn each, in alternating order."""
    folder = bundle()
    requests = [binary(rows) for rows in OVERLOAD_ROWS]
    compared = [compare(settings, folder, one) for one in settings.track(requests, "Early rejection", len(requests))]
    return {"offered_over_capacity": OVERLOAD, "requests": compared}


def compare(settings: Settings, folder: Path, request: Request) -> Values:
    """Goodput over capacity of both servers, whose queues hold half a second of work as in the benchmark `load`.

    The capacity is that without overload, where nothing is rejected, so that both are offered the same.
    """
    scratch, rounds = settings.scratch, settings.choose(3, 1)
    with serve(WITH, folder, scratch, request, settings.threads) as server:
        saturate(server, request, 1, scratch)  # first use
        runs = [saturate(server, request, settings.choose(6, 1), scratch) for _ in range(rounds)]
    capacity = statistics.median(run.requests_per_second for run in runs)
    limit = max(2 * ROWS_IN_FLIGHT, round(QUEUE_SECONDS * capacity * request.rows))
    given = {"PROBITY_MAX_QUEUE_ROWS": str(limit)}
    with contextlib.ExitStack() as stack:
        servers = {
            variant: stack.enter_context(serve(variant, folder, scratch, request, settings.threads, **given))
            for variant in VARIANTS
        }
        for server in servers.values():
            saturate(server, request, 1, scratch)  # first use
        turns = [one_round(settings, servers, request, turn, capacity) for turn in range(rounds)]
    goodput = {
        variant: statistics.median(turn[variant]["goodput_over_capacity"] for turn in turns) for variant in VARIANTS
    }
    return {
        "request": request.name,
        "settings": given,
        "capacity": [run.as_json() for run in runs],
        "rounds": turns,
        "goodput_over_capacity": goodput,
        "gain": goodput[WITH] - goodput[WITHOUT],
    }


def one_round(
    settings: Settings, servers: dict[str, ServerProcess], request: Request, turn: int, capacity: float
) -> Values:
    order = VARIANTS if turn % 2 == 0 else VARIANTS[::-1]
    return {variant: offer_three_times(settings, servers[variant], request, turn, capacity) for variant in order}


@contextlib.contextmanager
def serve(
    variant: str, bundle: Path, scratch: Path, ready: Request, threads: int, **settings: str
) -> Iterator[ServerProcess]:
    """The service with or without early rejection, once it has answered `ready`."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.serving.early_rejection_server", variant, str(bundle), str(port)]
    if threads != available_cpus():
        settings["PROBITY_THREADS"] = str(threads)
    with started(command, QUIET | settings, port, scratch / f"{variant}.log") as server:
        server.wait_until_answered(ready)
        yield server
