"""A long run at 80 % of the capacity, with vanishing clients, malformed requests and bundles that are replaced."""

import shutil
import time

import numpy as np

from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import Request, binary, features, images
from benchmarks.serving.fitted import bundle
from benchmarks.serving.mixture import HEALTH, Part, parts
from benchmarks.serving.openloop import Kind, Playing, play, poisson
from benchmarks.serving.outcomes import REFUSED, VANISHED, Outcomes, percentiles
from benchmarks.serving.process import ServerProcess, demur
from benchmarks.serving.replacing import Replacing
from benchmarks.serving.tree import Watch
from benchmarks.serving.wrk import saturate

LOAD, FLOOD, SEED = 0.8, 2.0, 0
WATCH = {"DEMUR_WATCH_SECONDS": "1"}
SETTLED = 120 / 600  # memory is looked at after minute 2 of 10; in a shorter run, after as large a part of it


def run(settings: Settings) -> Values:
    """One server, one load, for ten minutes."""
    seconds, scratch = settings.choose(600, 20), settings.scratch
    watched = scratch / "watched"
    shutil.copytree(bundle(), watched)
    good = [binary(8), images(1), features()]
    with demur(watched, scratch / "soak.log", good[0], settings.threads, **WATCH) as server:
        rates = capacities(settings, server, good)
        mixture = parts(good)
        kinds = [Kind(part.wire, part.share, part.vanish_seconds) for part in mixture]
        apart = 1 / sum(part.share / rates[part.name] for part in mixture if part.name in rates)
        together = capacity_of(settings, server, kinds, apart)
        rate = LOAD * min(apart, together)
        plan = poisson(kinds, rate, seconds, SEED)
        every = settings.choose(15, 4)
        with Watch(server.pid, settings.choose(1.0, 0.5)) as watch, Replacing(watched, every) as replacing:
            playing = Playing(server.port, plan)
            for _ in settings.track(range(seconds), "Soak"):
                time.sleep(1)
            found = playing.finish()
        alive = server.process.poll() is None
        loaded = server.log.read_text(errors="replace").count("serving digits version")
    return {
        "settings": WATCH,
        "capacity_requests_per_second": {**rates, "the mixture": together},
        "rate": rate,
        "load": LOAD,
        "replacements": {"every_seconds": every, "made": replacing.count, "loaded": loaded},
        "process_alive": alive,
        "verdict": judged(mixture, found),
        **found.as_json(),
        "memory": memory(watch.samples, found.start, seconds),
    }


def capacities(settings: Settings, server: ServerProcess, good: list[Request]) -> dict[str, float]:
    """Requests a second at most of each form that is computed."""
    seconds, scratch = settings.choose(8, 3), settings.scratch
    saturate(server, good[0], 1, scratch)
    return {request.name: saturate(server, request, seconds, scratch).requests_per_second for request in good}


def capacity_of(settings: Settings, server: ServerProcess, kinds: list[Kind], guess: float) -> float:
    """Requests a second of this mixture at most: of twice what may be expected, those that are not refused.

    It also fills the queue once: what a full one takes is then in memory before the long run, whose growth is a leak.
    """
    seconds = settings.choose(20, 3)
    found = play(server.port, poisson(kinds, FLOOD * guess, seconds, SEED))
    begin, end = found.start + seconds / 4, float(found.due[-1])
    served = ~np.isin(found.status, REFUSED) & (found.done >= begin) & (found.done < end)
    return float(served.sum() / (end - begin))


def judged(mixture: list[Part], found: Outcomes) -> Values:
    """Each part's outcomes; lost is what was sent whole, by a client that stayed, and not answered as it should be.

    429 is an answer as designed: such a request was not admitted.
    """
    rows, lost = [], 0
    for number, part in enumerate(mixture):
        status = found.status[found.kind == number]
        # The answer to a client that leaves may have come before it left.
        fine = (part.expected, 429) if part.vanish_seconds is None else (part.expected, 429, VANISHED)
        wrong = int((~np.isin(status, fine)).sum())
        lost += wrong
        rows.append({"name": part.name, "expected": part.expected, "wrong": wrong, "outcomes": found.counts({number})})
    (health,) = (number for number, part in enumerate(mixture) if part.name == HEALTH)
    return {"parts": rows, "lost": lost, "health_seconds": percentiles(found.latencies({health}))}


def memory(samples: list[tuple[float, int]], start: float, seconds: float) -> Values:
    """By a straight line, how much the resident set grows from when it has settled to the end."""
    times = np.array([moment - start for moment, _ in samples])
    sizes = np.array([size for _, size in samples], float)
    chosen = (times >= SETTLED * seconds) & (times <= seconds)
    slope, middle = np.polyfit(times[chosen] - times[chosen].mean(), sizes[chosen], 1)
    return {"bytes": float(middle), "growth": float(slope * (1 - SETTLED) * seconds / middle)}
