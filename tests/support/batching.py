"""A manual clock, a result with one number a row, and computations that wait until they are released."""

import asyncio
import heapq
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.service.batching import ComputeThreads, DynamicBatcher, Limits

Array = npt.NDArray[Any]
TIMEOUT = 30


@dataclass(frozen=True)
class Numbers:
    """A result: one number a row."""

    values: Array

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> "Numbers":
        return Numbers(self.values[start:stop])

    @classmethod
    def concatenate(cls, parts: "Sequence[Numbers]") -> "Numbers":
        return cls(np.concatenate([part.values for part in parts]))


@dataclass(order=True)
class Call:
    when: float
    number: int
    callback: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Lets go of the callback too, as the event loop's own does."""
        self.cancelled, self.callback = True, lambda: None


class ManualClock:
    """A clock that moves only with `advance`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[Call] = []
        self._count = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Call:
        self._count += 1
        call = Call(when, self._count, callback)
        heapq.heappush(self._calls, call)
        return call

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._calls and self._calls[0].when <= end:
            call = heapq.heappop(self._calls)
            self.now = max(self.now, call.when)
            if not call.cancelled:
                call.callback()
        self.now = end

    @property
    def pending(self) -> int:
        return sum(not call.cancelled for call in self._calls)


class Gate:
    """A computation (doubling) that records its batches and, while closed, blocks its thread."""

    def __init__(self) -> None:
        self.batches: list[list[float]] = []
        self._open = threading.Event()
        self._open.set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def __call__(self, inputs: Array) -> Numbers:
        self.batches.append(inputs.tolist())
        assert self._open.wait(TIMEOUT)
        return Numbers(inputs * 2)


class Poison(Exception):
    """What `picky` raises."""


def picky(inputs: Array) -> Numbers:
    """Doubles, but fails for the whole batch where a number is negative."""
    if (inputs < 0).any():
        raise Poison(f"found {inputs.min()}")
    return Numbers(inputs * 2)


def numbers(*values: float) -> Array:
    return np.array(values, float)


def batcher(
    compute: Callable[[Array], Numbers],
    *,
    rows: int = 8,
    queue: int = 100,
    threads: int = 1,
    others: int = 0,
    **options: Any,
) -> DynamicBatcher[Numbers]:
    seconds = {"clock": options["clock"].time} if "clock" in options else {}
    shared = ComputeThreads(threads, **seconds)
    for _ in range(others):
        shared.join()
    return DynamicBatcher(compute, Limits(rows, queue), shared, **options)


async def settle() -> None:
    """Run every task as far as it gets without threads or time."""
    for _ in range(20):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let tasks and threads run until the condition holds."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():
            await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """An event loop of its own for each test, which ends in time and leaves nothing behind."""

    async def whole() -> None:
        async with asyncio.timeout(TIMEOUT):
            await test()

    asyncio.run(whole(), debug=False)


async def held(gate: Gate, batches: DynamicBatcher[Numbers]) -> "asyncio.Task[Any]":
    """A request that keeps the only worker busy until the gate is opened."""
    gate.close()
    task = asyncio.create_task(batches.submit(numbers(0)))
    await until(lambda: len(gate.batches) == 1)
    return task
