"""The threads that compute, shared by all models in order of arrival."""

import asyncio
import contextlib
import functools
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Settle = Callable[[Any, BaseException | None], None]
Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, Settle]


@dataclass(frozen=True)
class _Place:
    """Who waits: granted is set to the number of threads."""

    share: int
    long: bool
    granted: asyncio.Future[int]


class ComputeThreads:
    """`count` compute threads. A batcher acquires as many as its network uses before it forms a batch, so that the
    batch grows while they are busy. `free` counts those that no batch holds.

    First come, first served: no model starves another, not even one that needs more threads at once. But where networks
    that compute long serve beside others (`join`), all of the long ones together leave one thread to the others: a
    prediction of a millisecond need not wait for those of a tenth of a second. `clock` gives monotonic seconds.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = self.free = count
        self._clock = clock
        self._started: dict[asyncio.Future[Any], float] = {}  # start times, the oldest first
        self._waiting: list[_Place] = []
        self._members: Counter[bool] = Counter()
        self._held_long = 0
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        for number in range(count):
            threading.Thread(target=_work, args=(self._jobs,), name=f"compute_{number}", daemon=True).start()

    @property
    def oldest_seconds(self) -> float:
        """Age of the oldest running computation in seconds; 0 without one."""
        return self._clock() - next(iter(self._started.values())) if self._started else 0.0

    def join(self, long: bool) -> None:
        """A model computes here from now on; long: one of its batches keeps others waiting."""
        self._members[long] += 1

    def leave(self, long: bool) -> None:
        """A model that has joined computes no more."""
        self._members[long] -= 1
        self._grant()

    @property
    def shared(self) -> bool:
        """Whether several models have joined."""
        return self._members.total() > 1

    @property
    def _most_long(self) -> int:
        """How many threads those that compute long may hold together."""
        beside_others = self._members[True] and self._members[False] and self.count > 1
        return self.count - 1 if beside_others else self.count

    async def acquire(self, share: int = 1, long: bool = False) -> int:
        """Wait until `share` of them (at most all that there are for its kind) are free, and return how many were
        granted; `release` as many whatever happens."""
        place = _Place(share, long, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._grant()
        try:
            return await place.granted
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
                self._grant()
            elif not place.granted.cancelled():  # granted already, but the caller is gone
                self.release(place.granted.result(), long)
            raise

    def release(self, share: int = 1, long: bool = False) -> None:
        """Give `share` threads back."""
        self.free += share
        self._held_long -= share if long else 0
        self._grant()

    async def run(self, function: Callable[[], T]) -> T:
        """Call `function` in a thread; acquire a share first.

        Like `run_in_executor`, but without its second, chained future: many computations here are as short as that
        takes.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._started[future] = self._clock()
        self._jobs.put((function, loop, functools.partial(self._settle, future)))
        return await future

    def shutdown(self) -> None:
        """End the threads without waiting for what still runs in them."""
        for _ in range(self.count):
            self._jobs.put(None)

    def _settle(self, future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
        del self._started[future]
        if future.done():  # the caller is gone
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def _grant(self) -> None:
        """In order, but that others pass those that compute long while these hold all that they may."""
        for place in list(self._waiting):
            share = min(place.share, self._most_long if place.long else self.count)
            if place.long and self._held_long + share > self._most_long:
                continue
            if share > self.free:
                return
            self._waiting.remove(place)
            if not place.granted.done():
                self.free -= share
                self._held_long += share if place.long else 0
                place.granted.set_result(share)


def _work(jobs: "queue.SimpleQueue[Job | None]") -> None:
    while (job := jobs.get()) is not None:
        function, loop, settle = job
        value, problem = None, None
        try:
            value = function()
        except BaseException as error:
            problem = error
        with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
            loop.call_soon_threadsafe(settle, value, problem)
