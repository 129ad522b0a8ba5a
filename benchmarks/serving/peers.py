"""This service and others around the same predictor: one digit a request, the same load for all, the same mishaps."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import MeasurementError
from benchmarks.serving.contestants import CONTESTANTS, Contestant
from benchmarks.serving.digits import rows
from benchmarks.serving.fitted import bundle
from benchmarks.serving.openloop import Kind, play, poisson
from benchmarks.serving.tree import Watch
from benchmarks.serving.trials import Trials
from benchmarks.serving.venvs import versions
from benchmarks.serving.wrk import find_wrk, saturate
from benchmarks.settings import Settings, Values
from service.inference.predictor import Predictor

LOADS = (("slowest", 0.5), ("slowest", 0.8), ("fastest", 0.8))
WHY = (
    "half and 80 % of the slowest one's saturation, which all can carry, compare latencies; 80 % of the fastest one's "
    "shows what the others do with a load that only it can carry"
)
SEED, TOLERANCE = 0, 1e-4
REPORTED = ("litserve", "bentoml", "mlserver", "fastapi", "uvicorn", "uvloop", "numpy", "onnxruntime", "pydantic")


def run(settings: Settings) -> Values:
    """Rounds of saturation first, since they decide the load; then the loads; then the mishaps."""
    find_wrk()
    folder = bundle()
    prepared = {one.name: prepare(one, settings, folder) for one in settings.track(CONTESTANTS, "Start each")}
    running = [one for one in CONTESTANTS if "error" not in prepared[one.name]]
    rounds = [
        {one.name: saturated(one, settings, folder) for one in running}
        for _ in settings.track(range(settings.choose(2, 1)), "Saturation")
    ]
    rates = {one.name: median_of(rounds, one.name, "requests_per_second") for one in running}
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
        "contestants": prepared,
        "saturation": {"rounds": rounds, "requests_per_second": rates},
        "offered": {"loads": offered, "why": WHY},
        "loads": [{name: medians(loads, name, place) for name in fast} for place in range(len(offered))],
        "load_rounds": loads,
        "mishaps": mishaps,
    }


def fastest_of_each(running: Sequence[Contestant], rates: dict[str, float]) -> list[Contestant]:
    """Each server in the arrangement with which it answers most."""
    families = dict.fromkeys(one.family for one in running)
    return [
        max((one for one in running if one.family == family), key=lambda one: rates[one.name]) for family in families
    ]


def prepare(contestant: Contestant, settings: Settings, folder: Path) -> Values:
    """Install and start it once, and compare its answer; one that cannot is reported with its message."""
    facts: Values = {"tuning": contestant.tuning, "settings": dict(contestant.settings)}
    try:
        installed = versions(contestant.install().parent.parent)
        facts["versions"] = {name: installed[name] for name in REPORTED if name in installed}
        with contestant.serve(settings.shelf.folder, folder, settings.threads) as server:
            check_answer(server.ask(contestant.digit())[1], folder)
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


def saturated(contestant: Contestant, settings: Settings, folder: Path) -> Values:
    """Requests a second at most, and the memory that it took."""
    scratch, request = settings.shelf.folder, contestant.digit()
    with contestant.serve(scratch, folder, settings.threads) as server:
        saturate(server, request, settings.choose(3, 2), scratch)
        with Watch(server.pid, 0.5) as watch:
            found = saturate(server, request, settings.choose(8, 4), scratch).as_json()
    return {**found, "peak_rss_bytes": watch.peak_resident, "peak_pss_bytes": watch.peak_proportional}


def loaded(contestant: Contestant, settings: Settings, folder: Path, rates: Sequence[float], turn: int) -> list[Values]:
    """The same arrivals for everyone, one load after the other, after a warm-up."""
    kinds, seconds = [Kind.of(contestant.digit())], settings.choose(20, 2)
    with contestant.serve(settings.shelf.folder, folder, settings.threads) as server:
        play(server.port, poisson(kinds, rates[0], settings.choose(3, 1), SEED))
        return [play(server.port, poisson(kinds, rate, seconds, SEED + turn)).as_json() for rate in rates]


def mishap(contestant: Contestant, settings: Settings, folder: Path, rate: float) -> Values:
    trials = Trials(settings.shelf.folder, folder, settings.threads)
    return {
        "disconnect": trials.disconnect(contestant),
        "poison": trials.poison(contestant),
        "sigterm": trials.sigterm(contestant, rate, settings.choose(8, 3)),
    }


def bound(rates: dict[str, float], of: str) -> float:
    return min(rates.values()) if of == "slowest" else max(rates.values())


def median_of(rounds: Sequence[Values], name: str, field: str) -> float:
    return float(statistics.median(turn[name][field] for turn in rounds))


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
