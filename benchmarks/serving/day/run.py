"""A simulated day of two replicas: a canary, a drift at noon, labels that come late; what is seen, fires and is used.

Every request is a real one to a real process, and every scrape a real one; only the time between them is left out, and
the samples get the times of the simulated day. So the replicas work without a pause for the whole day: what depends on
real seconds, such as latencies, is that of a service at its capacity.
"""

import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.core.settings import Settings, Values
from benchmarks.serving.day.alerts import alerts
from benchmarks.serving.day.bundles import DEGREES, fit_version
from benchmarks.serving.day.panels import EVERY, panels
from benchmarks.serving.day.plan import (
    ADDED,
    CANARY,
    CANARY_SHARE,
    DOWN,
    EVENTS,
    LABELLED,
    MINUTES,
    PROMOTED,
    clock,
    requests_by_minute,
)
from benchmarks.serving.day.prometheus import check_installed, prometheus_of
from benchmarks.serving.day.recording import Recording
from benchmarks.serving.day.replica import Replica
from benchmarks.serving.day.traffic import Clients, Requests
from benchmarks.serving.outcomes import NAMES
from demur.pin import pin_version

MODEL, SEED = "digits", 0
TOTAL, QUICK_TOTAL = 1_000_000, 10_000


def run(settings: Settings) -> Values:
    """The day itself, and then what Prometheus makes of it."""
    check_installed()
    total, samples = settings.choose(TOTAL, QUICK_TOTAL), settings.scratch / "samples.txt"
    models, waiting = settings.scratch / "models" / MODEL, settings.scratch / "waiting"
    fit_version(1, models / "1")
    fit_version(2, waiting)
    day = Day(settings, models.parent, waiting)
    with samples.open("w") as stream:
        recording = Recording(stream)
        uvloop.run(day.play(total, recording))
        recording.end()
    with prometheus_of(samples, settings.scratch) as prometheus:
        fired, shown = alerts(prometheus), panels(prometheus)
    return {
        "degrees": DEGREES,
        "labelled": LABELLED,
        "events": [{"at": clock(one.minute), "minute": one.minute, "end": one.end, "name": one.name} for one in EVENTS],
        **day.as_json(),
        "samples": recording.samples,
        "alerts": fired,
        "every_minutes": EVERY,
        "panels": shown,
    }


class Day:
    """The two replicas, those that ask them, and what came of it."""

    def __init__(self, settings: Settings, models: Path, waiting: Path) -> None:
        self._settings, self._models, self._waiting = settings, models, waiting
        secret = settings.scratch / "feedback-secret"
        secret.write_text(f"{secrets.token_hex(32)}\n")
        self._replicas = [Replica(number, models, secret, settings.scratch) for number in (1, 2)]
        self._clients, self._requests = Clients(), Requests(SEED)
        self._outcomes: dict[str, Counter[int]] = {"predictions": Counter(), "labels": Counter()}
        self._memory: dict[str, list[int | None]] = {replica.instance: [] for replica in self._replicas}
        self._scraped: dict[str, int] = {}
        self._seconds = 0.0

    async def play(self, total: int, recording: Recording) -> None:
        """Every minute: its events, its requests, its labels, and a scrape of each replica at its end."""
        pin_version(self._models, MODEL, "1")
        try:
            for replica in self._replicas:
                replica.start()
            self._observe(0, recording)
            counts = requests_by_minute(total)
            for minute in self._settings.track(range(MINUTES), "Minutes of the day", MINUTES):
                self._change(minute)
                await self._ask(minute, counts[minute])
                self._observe(minute + 1, recording)
            await self._clients.close()
        finally:
            for replica in self._replicas:
                replica.stop()

    def _change(self, minute: int) -> None:
        """What an operator does then."""
        if minute == ADDED:
            self._waiting.rename(self._models / MODEL / "2")
        elif minute == CANARY:
            pin_version(self._models, MODEL, "1", {"2": CANARY_SHARE})
        elif minute == PROMOTED:
            pin_version(self._models, MODEL, "2")
        if minute in (ADDED, CANARY, PROMOTED):
            for replica in self._replicas:
                replica.reload()
        last = self._replicas[-1]
        if minute == DOWN.start:
            last.stop()
        elif minute == DOWN.stop:
            last.start()

    async def _ask(self, minute: int, count: int) -> None:
        ports = [replica.port for replica in self._replicas if replica.up]
        batch, labels = self._requests.predictions(minute, count), self._requests.labels(minute)
        begun = time.monotonic()
        outcomes, answers = await self._clients.send(batch, ports)
        told, _ = await self._clients.send(labels, ports)
        self._seconds += time.monotonic() - begun
        self._requests.learn(minute, batch, answers)
        self._outcomes["predictions"].update(outcomes)
        self._outcomes["labels"].update(told)

    def _observe(self, minute: int, recording: Recording) -> None:
        for replica in self._replicas:
            scrape = replica.scrape()
            recording.take(minute, replica.instance, scrape)
            self._memory[replica.instance].append(replica.resident_bytes())
            if scrape is not None:
                series = sum(not line.startswith("#") for line in scrape.splitlines())
                self._scraped = {"series": series, "bytes": len(scrape)}

    def as_json(self) -> dict[str, Any]:
        """seconds: while requests were sent and answered. scrape: the last one. memory: in bytes."""
        requests = {
            what: {
                "sent": found.total(),
                "outcomes": {NAMES.get(status, f"{status}"): found[status] for status in sorted(found)},
            }
            for what, found in self._outcomes.items()
        }
        requests["labels"]["not_yet_due"] = self._requests.unlabelled
        return {
            "requests": requests,
            "seconds": self._seconds,
            "scrape": self._scraped,
            "memory": {instance: memory(found) for instance, found in self._memory.items()},
        }


def memory(by_minute: list[int | None]) -> Values:
    """A replica's resident memory; None while it was down. points: the most within as many minutes as in the panels."""
    known = [found for found in by_minute if found is not None]
    ends = range(0, len(by_minute), EVERY)
    points = [max(filter(None, by_minute[max(0, end - EVERY + 1) : end + 1]), default=None) for end in ends]
    return {"start": known[0], "end": known[-1], "peak": max(known), "hourly": by_minute[::60], "points": points}
