"""Faults injected into each server: clients that disconnect, a bad example in a batch, SIGTERM."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.core.settings import Values
from benchmarks.serving.digits import rows
from benchmarks.serving.openloop import Kind, Plan, Playing, play, poisson
from benchmarks.serving.outcomes import LOST, TIMEOUT, Outcomes
from benchmarks.serving.process import ServerProcess
from benchmarks.serving.servers import Server

VANISHING, NEIGHBOURS, VANISH_SECONDS = 200, 200, 0.005
BURST, BURSTS = 32, 5
PATIENCE_SECONDS = 20.0  # a neighbour that was not answered by then never will be
HUGE = 3e38  # finite in float32; the network's sums of such numbers are not
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
        neighbours = found.counts({GOOD})
        return {
            "neighbours": neighbours,
            "vanished": found.counts({BAD}),
            "afterwards": after.counts(),
            "process_alive": alive,
            "passed": neighbours.get("200") == NEIGHBOURS and after.counts().get("200") == 20 and alive,
        }

    def poison(self, server: Server) -> Values:
        """Bursts of 32 at one moment, one of which the network answers with infinity, or that has another shape."""
        bad = {"not finite": np.full((1, 8, 8), HUGE, np.float32), "wrong shape": rows(1)[0, :, :, :7]}
        with server.serve(self.folder, self.bundle, self.threads) as running:
            found: Values = {name: self._poisoned(running, server, example) for name, example in bad.items()}
        return {**found, "passed": all(one["passed"] for one in found.values())}

    def _poisoned(self, running: ServerProcess, server: Server, example: np.ndarray) -> Values:
        kinds = [Kind.of(server.digit()), Kind.of(server.request(example))]
        kind = np.zeros(BURST, int)
        kind[BURST // 2] = BAD
        found = [play(running.port, _burst(kinds, kind)) for _ in range(BURSTS)]
        neighbours, poison = _summed(found, GOOD), _summed(found, BAD)
        return {
            "neighbours": neighbours,
            "poison": poison,
            "passed": neighbours == {"200": BURSTS * (BURST - 1)},
        }

    def sigterm(self, server: Server, rate: float, seconds: float) -> Values:
        """SIGTERM in the middle of a load; lost is what was sent and answered by nothing, or by 5xx.

        Not connected is not lost: the client knows that nothing was received, and goes to another server.
        Nor is an exit status of -15 a fault: uvicorn ends in order and then raises the signal again.
        """
        with server.serve(self.folder, self.bundle, self.threads) as running:
            plan = poisson([Kind.of(server.digit())], rate, seconds, seed=0)
            playing = Playing(running.port, plan)
            time.sleep(max(0.0, playing.start + seconds / 2 - time.monotonic()))
            moment = time.monotonic()
            end = running.terminate()
            found = playing.finish()
        lost = _lost(found)
        return {
            "rate": rate,
            "outcomes": found.counts(),
            "end": end,
            "answered_after_sigterm": found.answered(moment, np.inf),
            "lost_sent_before": int((lost & (found.sent <= moment)).sum()),
            "lost_sent_after": int((lost & (found.sent > moment)).sum()),
            "passed": not lost.any() and end["exit_status"] is not None,
        }


def _burst(kinds: list[Kind], kind: np.ndarray) -> Plan:
    return Plan(kinds, np.zeros(len(kind)), kind, patience_seconds=PATIENCE_SECONDS)


def _summed(found: list[Outcomes], kind: int) -> dict[str, int]:
    total: dict[str, int] = {}
    for outcomes in found:
        for name, count in outcomes.counts({kind}).items():
            total[name] = total.get(name, 0) + count
    return total


def _lost(found: Outcomes) -> np.ndarray:
    return np.isin(found.status, (LOST, TIMEOUT)) | (found.status >= 500)
