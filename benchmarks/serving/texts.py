"""Texts at saturation: the service beside a bare FastAPI around the plain network and the same tokenizer, in turns."""

import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.core.settings import Settings, Values
from benchmarks.serving.process import ServerProcess, demur, free_port, started
from benchmarks.serving.reviews import bundle, request
from benchmarks.serving.wrk import find_wrk, saturate

COUNTS, CONNECTIONS = (1, 32), (1, 16)
BARE = "benchmarks.serving.wrapped.plain_texts"
QUIET = {"DEMUR_ACCESS_LOG": "false"}


def run(settings: Settings) -> Values:
    """Both run all the time, and one of them is asked."""
    find_wrk()
    folder, seconds, count = bundle(), settings.choose(6, 1), settings.choose(5, 1)
    with ExitStack() as stack:
        log = settings.scratch / "service.log"
        ours = stack.enter_context(demur(folder, log, request(1), settings.threads, **QUIET))
        servers = {"demur": ours, "fastapi": bare(folder, settings.scratch / "bare.log", stack)}
        for server in servers.values():  # first use
            saturate(server, request(32), 1, settings.scratch, 2)
        rounds = [
            {
                f"{texts} texts, {connections} connections": {
                    name: saturate(server, request(texts), seconds, settings.scratch, connections).as_json()
                    for name, server in servers.items()
                }
                for texts in COUNTS
                for connections in CONNECTIONS
            }
            for _ in settings.track(range(count), "Rounds", count)
        ]
    return {"rows": {name: row([turn[name] for turn in rounds]) for name in rounds[0]}, "rounds": rounds}


def bare(folder: Path, log: Path, stack: ExitStack) -> ServerProcess:
    """FastAPI, ready; its threads are its own, one a computation."""
    port = free_port()
    arrangement = {"SERVED_BUNDLE": str(folder), "SERVED_PORT": str(port), "SERVED_THREADS": "1"}
    server = stack.enter_context(started([sys.executable, "-m", BARE], arrangement, port, log))
    server.wait_until_answered(request(1))
    return server


def row(turns: list[Values]) -> Values:
    """Medians of the rounds, texts a second; `ratio` of the two of a round."""
    speeds = {name: [turn[name]["examples_per_second"] for turn in turns] for name in turns[0]}
    ratios = [ours / theirs for ours, theirs in zip(speeds["demur"], speeds["fastapi"], strict=True)]
    found: Values = {name: statistics.median(speed) for name, speed in speeds.items()}
    return found | {"ratio": statistics.median(ratios), "least_ratio": min(ratios), "largest_ratio": max(ratios)}
