"""This service and others around the same predictor: one digit per request, the same loads, the same faults."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import rows
from benchmarks.serving.fitted import bundle
from benchmarks.serving.openloop import Kind, play, poisson
from benchmarks.serving.servers import SERVERS, Server
from benchmarks.serving.tree import Watch
from benchmarks.serving.trials import Trials
from benchmarks.serving.venvs import versions
from benchmarks.serving.wrk import find_wrk, saturate
from demur.service.inference.predictor import Predictor

LOADS = (("slowest", 0.5), ("slowest", 0.8), ("fastest", 0.8))  # the last one only the fastest can carry
SEED, TOLERANCE = 0, 1e-4
# Of clients that ask without a pause. The most decide the loads offered afterwards.
CONNECTIONS = (4, 32, 256)
MOST = str(max(CONNECTIONS))
REPORTED = ("litserve", "bentoml", "mlserver", "fastapi", "uvicorn", "uvloop", "numpy", "onnxruntime", "pydantic")


def run(settings: Settings) -> Values:
    """Saturation first, since it decides the loads; then the loads; then the faults."""
    find_wrk()
    folder = bundle()
    prepared = {one.name: prepare(one, settings, folder) for one in settings.track(SERVERS, "Start each")}
    running = [one for one in SERVERS if "error" not in prepared[one.name]]
    rounds = [
        {one.name: saturated(one, settings, folder) for one in running}
        for _ in settings.track(range(settings.choose(3, 1)), "Saturation")
    ]
    by_connections = {
        str(count): {one.name: median_of(rounds, one.name, str(count)) for one in running} for count in CONNECTIONS
    }
    rates = dict(by_connections[MOST])
    for name in [name for name, rate in rates.items() if not rate]:
        prepared[name]["error"] = "it answered nothing with 200 in most rounds of saturation: no load was offered to it"
        del rates[name]
    running = fastest_of_each([one for one in running if one.name in rates], rates)
    fast = {one.name: rates[one.name] for one in running}
    offered: list[Values] = [{"of": of, "share": share, "rate": share * bound(fast, of)} for of, share in LOADS]
    loads = [
        {one.name: loaded(one, settings, folder, [load["rate"] for load in offered], turn) for one in running}
        for turn in settings.track(range(settings.choose(2, 1)), "Open loop")
    ]
    half = offered[0]["rate"]
    mishaps = {one.name: mishap(one, settings, folder, half) for one in settings.track(running, "Mishaps")}
    return {
        "servers": prepared,
        "saturation": {"rounds": rounds, "requests_per_second": by_connections},
        "offered": offered,
        "loads": [{name: medians(loads, name, place) for name in fast} for place in range(len(offered))],
        "load_rounds": loads,
        "mishaps": mishaps,
    }


def fastest_of_each(running: Sequence[Server], rates: dict[str, float]) -> list[Server]:
    """Each server in the arrangement with which it answers most."""
    families = dict.fromkeys(one.family for one in running)
    return [
        max((one for one in running if one.family == family), key=lambda one: rates[one.name]) for family in families
    ]


def prepare(server: Server, settings: Settings, folder: Path) -> Values:
    """Install and start it once, and compare its answer; one that cannot is reported with its message."""
    facts: Values = {"tuning": server.tuning, "settings": dict(server.settings)}
    try:
        installed = versions(server.install().parent.parent)
        facts["versions"] = {name: installed[name] for name in REPORTED if name in installed}
        with server.serve(settings.scratch, folder, settings.threads) as running:
            check_answer(running.ask(server.digit())[1], folder)
    except MeasurementError as error:
        facts["error"] = str(error)
    return facts


def check_answer(body: bytes, folder: Path) -> None:
    """The probabilities are those that the predictor computes here."""
    expected = Predictor.load(folder).predict(rows(1)).probabilities
    found = probabilities(json.loads(body))
    assert expected is not None
    if not np.allclose(found, expected, atol=TOLERANCE):
        raise MeasurementError(f"its answer has the probabilities {found}, expected {expected}")


def probabilities(answer: Values | list[Values]) -> Sequence[float]:
    """Wherever this server puts them."""
    if isinstance(answer, list):
        return probabilities(answer[0])
    if "predictions" in answer:
        return probabilities(answer["predictions"])
    if "outputs" in answer:
        return next(output["data"] for output in answer["outputs"] if output["name"] == "probabilities")
    found = answer["probabilities"]
    return list(found.values()) if isinstance(found, dict) else found


def saturated(server: Server, settings: Settings, folder: Path) -> Values:
    """Requests a second by the number of connections, and the memory that they took."""
    scratch, request = settings.scratch, server.digit()
    with server.serve(scratch, folder, settings.threads) as running:
        saturate(running, request, settings.choose(3, 2), scratch)
        with Watch(running.pid, 0.5) as watch:
            found: Values = {
                str(count): saturate(running, request, settings.choose(6, 2), scratch, count).as_json()
                for count in CONNECTIONS
            }
    return {**found, "peak_rss_bytes": watch.peak_resident}


def loaded(server: Server, settings: Settings, folder: Path, rates: Sequence[float], turn: int) -> list[Values]:
    """The same arrivals for everyone, one load after the other, after a warm-up."""
    kinds, seconds = [Kind.of(server.digit())], settings.choose(12, 2)
    with server.serve(settings.scratch, folder, settings.threads) as running:
        play(running.port, poisson(kinds, rates[0], settings.choose(3, 1), SEED))
        return [play(running.port, poisson(kinds, rate, seconds, SEED + turn)).as_json() for rate in rates]


def mishap(server: Server, settings: Settings, folder: Path, rate: float) -> Values:
    trials = Trials(settings.scratch, folder, settings.threads)
    return {
        "disconnect": trials.disconnect(server),
        "poison": trials.poison(server),
        "sigterm": trials.sigterm(server, rate, settings.choose(8, 3)),
    }


def bound(rates: dict[str, float], of: str) -> float:
    return min(rates.values()) if of == "slowest" else max(rates.values())


def median_of(rounds: Sequence[Values], name: str, connections: str) -> float:
    """Requests a second of a server at so many connections."""
    return float(statistics.median(turn[name][connections]["requests_per_second"] for turn in rounds))


def medians(rounds: Sequence[Values], name: str, place: int) -> Values:
    """Medians of the rounds' percentiles, and all outcomes."""
    found = [turn[name][place] for turn in rounds]
    levels = {level for one in found for level in one["latency"]}
    outcomes: dict[str, int] = {}
    for one in found:
        for kind, count in one["outcomes"].items():
            outcomes[kind] = outcomes.get(kind, 0) + count
    latency = {level: statistics.median(one["latency"][level] for one in found if one["latency"]) for level in levels}
    return {"latency": latency, "outcomes": outcomes}
