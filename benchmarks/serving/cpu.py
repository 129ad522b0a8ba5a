"""Processor time for an example, with the access log on as it is by default, and requests a second beside FastAPI.

The servers take turns in every round. "plain network" is FastAPI around the network without its variances, "no work" a
FastAPI route that reads the request and answers with as many bytes.
"""

import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import PREDICT, Request, binary, rows
from benchmarks.serving.fitted import bundle
from benchmarks.serving.process import ServerProcess, demur, free_port, started
from benchmarks.serving.servers import DEMUR, OTHERS
from benchmarks.serving.tree import processor_seconds
from benchmarks.serving.wrk import saturate

EXAMPLES, CONNECTIONS, SEVERAL = (1, 8, 32), 16, (4, 32, 256)
THREADS = 2
SERVICE, PLAIN, NOTHING = "demur", "plain network", "no work"
TRACED = {"none": None, "one of a hundred": "0.01", "all": "1"}  # the share of requests, as OpenTelemetry has it


@dataclass(frozen=True)
class Asked:
    """One server, and one request to it."""

    server: ServerProcess
    request: Request


def run(settings: Settings) -> Values:
    """Microseconds of processor time for an example, by server and request; and requests a second."""
    with servers(settings.scratch) as found:
        times = of_an_example(found, settings)
    with traced(settings.scratch) as found:
        traces = of_an_example(found, settings)
    return {"microseconds": times, "traces": traces, "requests_per_second": against_fastapi(settings)}


def of_an_example(found: dict[str, Asked], settings: Settings) -> Values:
    """Of the servers and all of their processes, in user space and in the kernel."""
    seconds, count, scratch = settings.choose(2, 1), settings.choose(7, 1), settings.scratch
    each: dict[str, list[float]] = {name: [] for name in found}
    for asked in found.values():  # first use
        saturate(asked.server, asked.request, 1, scratch, CONNECTIONS)
    for number in settings.track(range(count), "Rounds", count):
        for name in list(found)[:: 1 if number % 2 else -1]:
            each[name].append(microseconds(found[name], seconds, scratch))
    return {name: {"median": statistics.median(values), "rounds": values} for name, values in each.items()}


@contextmanager
def servers(scratch: Path) -> Iterator[dict[str, Asked]]:
    """By "server, form, examples"."""
    forms = {("JSON", count): features(count) for count in EXAMPLES}
    forms |= {("binary", count): binary(count) for count in EXAMPLES}
    with ExitStack() as stack:
        ours = stack.enter_context(demur(bundle(), scratch / "demur.log", binary(1), THREADS))
        answers = {(form, count): ours.ask(request)[1] for (form, count), request in forms.items()}
        lengths = {len(forms[key].body): len(answer) for key, answer in answers.items()}
        nothing = stack.enter_context(empty_server(scratch / "empty.log", lengths))
        plain = stack.enter_context(plain_network(scratch / "plain.log"))
        found = {}
        for (form, count), request in forms.items():
            one = f"{form}, {count}"
            found[f"{SERVICE}, {one}"] = Asked(ours, request)
            found[f"{NOTHING}, {one}"] = Asked(nothing, Request(one, binary(1).path, request.body, count))
            if form == "JSON":
                found[f"{PLAIN}, {one}"] = Asked(plain, request)
        yield found


@contextmanager
def traced(scratch: Path) -> Iterator[dict[str, Asked]]:
    """The service by the share of its requests that it traces, one example of JSON each."""
    request, port, found = features(1), free_port(), dict[str, Asked]()
    with ExitStack() as stack:
        command = [sys.executable, "-m", "benchmarks.serving.silent_collector", str(port)]
        stack.enter_context(started(command, {}, port, scratch / "collector.log"))
        for name, share in TRACED.items():
            variables = (
                {}
                if share is None
                else {
                    "DEMUR_TRACES": "true",
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
                    "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
                    "OTEL_TRACES_SAMPLER_ARG": share,
                }
            )
            log = scratch / f"traces-{share}.log"
            server = stack.enter_context(demur(bundle(), log, request, THREADS, **variables))
            found[name] = Asked(server, request)
        yield found


def features(count: int) -> Request:
    """The native API with so many digits, pixels with four digits each."""
    return Request(
        f"JSON, {count} rows", PREDICT, json.dumps({"inputs": rows(count).round(4).tolist()}).encode(), count
    )


@contextmanager
def empty_server(log: Path, lengths: dict[int, int]) -> Iterator[ServerProcess]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.serving.empty_server", str(port), json.dumps(lengths)]
    with started(command, {}, port, log) as server:
        server.wait_until_answered(Request("any", binary(1).path, b"x" * min(lengths)))
        yield server


@contextmanager
def plain_network(log: Path) -> Iterator[ServerProcess]:
    port = free_port()
    served = {"SERVED_BUNDLE": str(bundle()), "SERVED_PORT": str(port), "SERVED_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.serving.wrapped.plain_network"]
    with started(command, served, port, log) as server:
        server.wait_until_answered(features(1))
        yield server


def microseconds(asked: Asked, seconds: float, scratch: Path) -> float:
    """Processor time for an example while `CONNECTIONS` ask without a pause."""
    before = processor_seconds(asked.server.pid)
    found = saturate(asked.server, asked.request, seconds, scratch, CONNECTIONS)
    return 1e6 * (processor_seconds(asked.server.pid) - before) / (found.examples_per_second * found.seconds)


def against_fastapi(settings: Settings) -> Values:
    """Of the service and of FastAPI around the same predictor, one process each and no access log, one example a
    request; `ratio` is the median of the rounds' ratios."""
    seconds, count, scratch = settings.choose(2, 1), settings.choose(7, 1), settings.scratch
    arranged = (DEMUR, OTHERS[0])
    found: dict[str, Values] = {}
    with ExitStack() as stack:
        running = {one.name: stack.enter_context(one.serve(scratch, bundle(), THREADS)) for one in arranged}
        for connections in settings.track(SEVERAL, "Connections", len(SEVERAL)):
            each: dict[str, list[float]] = {one.name: [] for one in arranged}
            for number in range(count + 1):
                for one in arranged[:: 1 if number % 2 else -1]:
                    rate = saturate(running[one.name], one.digit(), seconds, scratch, connections).requests_per_second
                    each[one.name] += [rate] if number else []  # the first turn is first use
            ours, theirs = (each[one.name] for one in arranged)
            ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
            found[str(connections)] = {"ratio": statistics.median(ratios), "rounds": each} | {
                name: statistics.median(values) for name, values in each.items()
            }
    return found
