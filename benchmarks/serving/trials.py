"""Faults injected into each server: clients that disconnect, a bad example in a batch, SIGTERM."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.core.settings import Values
from benchmarks.serving.digits import rows
from benchmarks.serving.openloop import Kind, Plan, Playing, play, poisson
from benchmarks.serving.outcomes import LOST, TIMEOUT, Outcomes
from benchmarks.serving.servers import Server

VANISHING, NEIGHBOURS, VANISH_SECONDS = 200, 200, 0.005
BURST, BURSTS = 32, 5
PATIENCE_SECONDS = 20.0  # a neighbour that was not answered by then never will be
GOOD, BAD = 0, 1


@dataclass(frozen=True)
class Trials:
    """Where servers may write, the bundle they serve, and their threads; every trial has a fresh server."""

    folder: Path
    bundle: Path
    threads: int

    def disconnect(self, server: Server) -> Values:
        """200 clients send and leave 5 ms later, among 200 that wait; then 20 more ask."""
        good = server.digit()
        kinds = [Kind.of(good), Kind.of(good, vanish_seconds=VANISH_SECONDS)]
        kind = np.random.default_rng(0).permutation(np.repeat([GOOD, BAD], [NEIGHBOURS, VANISHING]))
        plan = Plan(kinds, np.linspace(0, 2, len(kind)), kind, patience_seconds=PATIENCE_SECONDS)
        with server.serve(self.folder, self.bundle, self.threads) as running:
            found = play(running.port, plan)
            after = play(running.port, _burst([Kind.of(good)], np.zeros(20, int)))
            alive = running.process.poll() is None
        return {"neighbours": found.counts({GOOD}), "afterwards": after.counts(), "process_alive": alive}

    def poison(self, server: Server) -> Values:
        """Bursts of 32 at one moment, one of which has another shape."""
        kinds = [Kind.of(server.digit()), Kind.of(server.request(rows(1)[0, :, :, :7]))]
        kind = np.zeros(BURST, int)
        kind[BURST // 2] = BAD
        with server.serve(self.folder, self.bundle, self.threads) as running:
            found = [play(running.port, _burst(kinds, kind)) for _ in range(BURSTS)]
        return {"neighbours": _summed(found, GOOD), "poison": _summed(found, BAD)}

    def sigterm(self, server: Server, rate: float, seconds: float) -> Values:
        """SIGTERM in the middle of a load; lost is what was sent and answered by nothing, or by 5xx.

        Not connected is not lost: the client knows that nothing was received, and goes to another server.
        """
        with server.serve(self.folder, self.bundle, self.threads) as running:
            plan = poisson([Kind.of(server.digit())], rate, seconds, seed=0)
            playing = Playing(running.port, plan)
            time.sleep(max(0.0, playing.start + seconds / 2 - time.monotonic()))
            running.terminate()
            found = playing.finish()
        lost = np.isin(found.status, (LOST, TIMEOUT)) | (found.status >= 500)
        return {"rate": rate, "outcomes": found.counts(), "lost": int(lost.sum())}


def _burst(kinds: list[Kind], kind: np.ndarray) -> Plan:
    return Plan(kinds, np.zeros(len(kind)), kind, patience_seconds=PATIENCE_SECONDS)


def _summed(found: list[Outcomes], kind: int) -> dict[str, int]:
    total: dict[str, int] = {}
    for outcomes in found:
        for name, count in outcomes.counts({kind}).items():
            total[name] = total.get(name, 0) + count
    return total
