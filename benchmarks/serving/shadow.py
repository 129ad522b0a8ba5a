"""A version in the shadow: what it costs those that ask, in turns with a service that has none."""

import http.client
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
from probity.service.models.versions_file import write_versions
from probity.tag import tag_bundle

MODEL, SHARE, LOAD = "digits", 0.1, 0.5
WITHOUT, WITH = "without", "with"
SEED = 0


def run(settings: Settings) -> Values:
    """Both services hold both versions; in each round each is asked the same, at half of what one can answer."""
    seconds, count = settings.choose(10, 2), settings.choose(24, 1)
    request = images(1)
    with ExitStack() as stack:
        folder = versions(settings.scratch / "models")
        shadows: dict[str, dict[str, str]] = {WITHOUT: {}, WITH: {"PROBITY_SHADOW": f"{MODEL}/2@{SHARE}"}}
        servers = {
            name: stack.enter_context(service(folder, settings.scratch / f"{name}.log", binary(1), shadow))
            for name, shadow in shadows.items()
        }
        for server in servers.values():  # first use
            saturate(server, request, 1, settings.scratch)
        rate = LOAD * saturate(servers[WITHOUT], request, seconds, settings.scratch).as_json()["requests_per_second"]
        rounds = []
        for number in settings.track(range(count), "Rounds", count):
            turn = {}
            for name in (WITHOUT, WITH) if number % 2 else (WITH, WITHOUT):
                plan = poisson([Kind.of(request)], rate, seconds, SEED + number)
                turn[name] = play(servers[name].port, plan).as_json()
            rounds.append(turn)
        examples = counted(servers[WITH])
    return {
        "request": request.name,
        "rate": rate,
        "share": SHARE,
        "predicted_in_the_shadow": examples,
        "latency": {key: compared(rounds, key) for key in ("p50", "p95", "p99")},
        "rounds": rounds,
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
    settings = {"PROBITY_ACCESS_LOG": "false", "PROBITY_READY_REQUIRES": "all", **shadow}
    command = [sys.executable, "-m", "probity.service", "--models", str(folder), "--port", str(port)]
    with started(command, settings, port, log) as server:
        server.wait_until_answered(ready)
        yield server


def counted(server: ServerProcess) -> float:
    """How many examples the shadow has predicted."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(r"^probity_shadow_examples_total\{.*\} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def compared(rounds: list[Values], key: str) -> Values:
    """Medians of the rounds in seconds, and the median and the range of the ratios within a round."""
    each = {name: [turn[name]["latency"][key] for turn in rounds] for name in (WITHOUT, WITH)}
    ratios = [other / one for one, other in zip(each[WITHOUT], each[WITH], strict=True)]
    found: Values = {name: statistics.median(values) for name, values in each.items()}
    return found | {"ratio": statistics.median(ratios), "least_ratio": min(ratios), "largest_ratio": max(ratios)}
