"""Measure each method in a fresh process; they take turns, so that a disturbance hits all of them."""

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from benchmarks.core.folders import ROOT
from demur.offline.runtime.available_memory import available_memory

LEAST_SECONDS = 0.2  # of one repetition, about: a shorter one measures the clock
MEMORY_SHARE = 0.6
MUCH_SLOWER = 1.5
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
Values = dict[str, Any]


class MeasurementError(RuntimeError):
    """A measurement that could not be made."""


@dataclass(frozen=True)
class MethodSpec:
    """A method to measure: its class as "module:name" and the values it is built from."""

    name: str
    target: str
    values: Values


@dataclass(frozen=True)
class Measurement:
    """Seconds per example in each repetition, at one batch size; peak growth of the resident set in bytes."""

    method: str
    batch: int
    seconds: list[float]
    peak_bytes: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


class Process:
    """A worker process (`benchmarks.core.worker`), for the length of a `with` block."""

    def __init__(self, target: str, values: Values, threads: int) -> None:
        self.target = target
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.core.worker", target]
        self.process = subprocess.Popen(
            [*command, json.dumps({**values, "threads": threads})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def __enter__(self) -> "Process":
        try:
            self._reply()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def ask(self, do: str, **request: Any) -> Values:
        """Send one request and return its answer; raises `MeasurementError` if the process ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self.process.stdin.flush()
        return self._reply()

    def _reply(self) -> Values:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise MeasurementError(f"{self.target}: found exit code {code} before an answer; its messages are above")
        reply: Values = json.loads(line)
        return reply

    def _stop(self) -> None:
        """Close its input, which ends an idle worker, and terminate a busy one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.terminate()
        self.process.wait()


def call(target: str, values: Values, threads: int) -> Values:
    """The result of a function, run in a fresh process."""
    with Process(target, values, threads) as process:
        return process.ask("call")


@dataclass(frozen=True)
class Sweep:
    """A method's answer, for comparison, and its seconds per example by batch size (or why there are none)."""

    answer: list[float]
    seconds: dict[str, float | str]

    @property
    def best(self) -> int:
        """The batch size with the least seconds an example."""
        timed = {int(batch): seconds for batch, seconds in self.seconds.items() if isinstance(seconds, float)}
        if not timed:
            raise MeasurementError(f"batch sizes: found none that fits in memory, {self.seconds}")
        return min(timed, key=lambda batch: timed[batch])


def sweep(method: MethodSpec, batches: Sequence[int], threads: int) -> Sweep:
    """Time each batch size that fits in memory; stop after two slower than the best, or one slower by half."""
    found: dict[str, float | str] = {}
    best, slower = math.inf, 0
    with Process(method.target, method.values, threads) as process:
        answer = process.ask("answer")["values"]
        for batch in batches:
            memory = process.ask("fits", batch=batch, available=int(MEMORY_SHARE * available_memory()))
            if not memory["fits"]:
                found[str(batch)] = f"left out: needs about {memory['needed_bytes'] / 2**30:.1f} GiB"
                break
            seconds = steady_seconds(process, batch)
            found[str(batch)] = seconds
            slower = slower + 1 if seconds > best else 0
            if slower == 2 or seconds > MUCH_SLOWER * best:
                break
            best = min(best, seconds)
    return Sweep(answer, found)


def warm_up(process: Process, batch: int) -> float:
    """Seconds of one batch; of a second one if the first was short, since it is mostly set-up."""
    first: float = process.ask("step", batch=batch, batches=1)["seconds"]
    return first if first > 10 * LEAST_SECONDS else float(process.ask("step", batch=batch, batches=1)["seconds"])


def steady_seconds(process: Process, batch: int) -> float:
    """Seconds per example after a warm-up; a long warm-up is itself the measurement."""
    first = warm_up(process, batch)
    if first > LEAST_SECONDS:
        return first / batch
    count = batches_for(first)
    return float(process.ask("step", batch=batch, batches=count)["seconds"]) / (batch * count)


def batches_for(seconds: float) -> int:
    """How many batches make a repetition of at least `LEAST_SECONDS`."""
    return max(1, math.ceil(LEAST_SECONDS / max(seconds, 1e-6)))


def take_turns(
    methods: Sequence[MethodSpec], sizes: Sequence[int], repetitions: int, threads: int
) -> list[Measurement]:
    """One warm-up each, then `repetitions` rounds with one turn each; the peak memory covers all of it."""
    with ExitStack() as stack:
        processes = [stack.enter_context(Process(e.target, e.values, threads)) for e in methods]
        turns = list(zip(processes, sizes, strict=True))
        counts = [batches_for(warm_up(process, size)) for process, size in turns]
        rounds = [
            [p.ask("step", batch=b, batches=n)["seconds"] / (b * n) for (p, b), n in zip(turns, counts, strict=True)]
            for _ in range(repetitions)
        ]
        peaks = [process.ask("peak")["bytes"] for process in processes]
    return [
        Measurement(e.name, b, [row[i] for row in rounds], peaks[i])
        for i, (e, b) in enumerate(zip(methods, sizes, strict=True))
    ]
