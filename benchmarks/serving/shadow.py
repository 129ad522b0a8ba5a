"""A version in the shadow: what it costs those that ask, in turns with two services that have none."""

import http.client
import math
import re
import shutil
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import Request, binary, images
from benchmarks.serving.fitted import bundle
from benchmarks.serving.openloop import Kind, play, poisson
from benchmarks.serving.process import ServerProcess, free_port, started
from benchmarks.serving.wrk import saturate
from demur.service.models.versions_file import write_versions
from demur.tag import tag_bundle

MODEL, SHARE, LOAD = "digits", 0.1, 0.5
WITHOUT, AGAIN, WITH = "without", "again", "with"
TURNS = (WITHOUT, AGAIN, WITH)
SEED = 0
DEVIATIONS = 1.96  # of a mean, on either side: an interval of 95 %


def run(settings: Settings) -> Values:
    """All services hold both versions; in each round each is asked the same, at half of what one can answer.

    The turns are short: what else the machine does changes from one second to the next. The second service without a
    shadow says how far two that are alike differ.
    """
    seconds, count = settings.choose(1.5, 1), settings.choose(150, 2)
    request = images(1)
    with ExitStack() as stack:
        folder = versions(settings.scratch / "models")
        shadows: dict[str, dict[str, str]] = {WITHOUT: {}, AGAIN: {}, WITH: {"DEMUR_SHADOW": f"{MODEL}/2@{SHARE}"}}
        servers = {
            name: stack.enter_context(service(folder, settings.scratch / f"{name}.log", binary(1), shadow))
            for name, shadow in shadows.items()
        }
        for server in servers.values():  # first use
            saturate(server, request, 1, settings.scratch)
        rate = LOAD * saturate(servers[WITHOUT], request, settings.choose(10, 1), settings.scratch).requests_per_second
        rounds = []
        for number in settings.track(range(count), "Rounds", count):
            turn = {}
            first = number % len(TURNS)
            for name in TURNS[first:] + TURNS[:first]:
                plan = poisson([Kind.of(request)], rate, seconds, SEED + number)
                turn[name] = play(servers[name].port, plan).as_json()["latency"]
            rounds.append(turn)
        examples = counted(servers[WITH])
    return {
        "request": request.name,
        "rate": rate,
        "share": SHARE,
        "predicted_in_the_shadow": examples,
        "rounds": count,
        "latency": {key: compared(rounds, key) for key in ("p50", "p95", "p99")},
    }


def versions(folder: Path) -> Path:
    """The digits' bundle as version 1, which answers, and the same as version 2."""
    fitted = bundle()
    shutil.rmtree(folder, ignore_errors=True)
    for version in ("1", "2"):
        (folder / MODEL).mkdir(parents=True, exist_ok=True)
        tag_bundle(fitted, folder / MODEL / version, version=version)
    write_versions(folder, {MODEL: "1"})
    return folder


@contextmanager
def service(folder: Path, log: Path, ready: Request, shadow: dict[str, str]) -> Iterator[ServerProcess]:
    """One that has loaded both versions."""
    port = free_port()
    settings = {"DEMUR_ACCESS_LOG": "false", "DEMUR_READY_REQUIRES": "all", **shadow}
    command = [sys.executable, "-m", "demur.service", "--models", str(folder), "--port", str(port)]
    with started(command, settings, port, log) as server:
        server.wait_until_answered(ready)
        yield server


def counted(server: ServerProcess) -> float:
    """How many examples the shadow has predicted."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(r"^demur_shadow_examples_total\{.*\} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def compared(rounds: list[Values], key: str) -> Values:
    """Medians of the rounds in seconds, and the ratios to the first service within a round."""
    found: Values = {name: statistics.median(turn[name][key] for turn in rounds) for name in TURNS}
    for name in (AGAIN, WITH):
        found[f"ratio_{name}"] = mean_ratio([turn[name][key] / turn[WITHOUT][key] for turn in rounds])
    return found


def mean_ratio(ratios: list[float]) -> Values:
    """Their geometric mean, and its 95 % interval."""
    logs = [math.log(one) for one in ratios]
    mean, half = statistics.mean(logs), DEVIATIONS * statistics.stdev(logs) / math.sqrt(len(logs))
    return {"mean": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half)}
