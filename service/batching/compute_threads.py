"""The threads that compute, shared by all models in order of arrival."""

import asyncio
import contextlib
import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Settle = Callable[[Any, BaseException | None], None]
Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, Settle]


class ComputeThreads:
    """`count` compute threads. A batcher acquires as many as its network uses before it forms a batch, so that the
    batch grows while they are busy. `free` counts those that no batch holds.

    First come, first served: no model starves another, not even one that needs more threads at once. `clock` gives
    monotonic seconds.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = self.free = count
        self._clock = clock
        self._started: dict[asyncio.Future[Any], float] = {}  # start times, the oldest first
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        for number in range(count):
            threading.Thread(target=_work, args=(self._jobs,), name=f"compute_{number}", daemon=True).start()

    @property
    def oldest_seconds(self) -> float:
        """Age of the oldest running computation in seconds; 0 without one."""
        return self._clock() - next(iter(self._started.values())) if self._started else 0.0

    async def acquire(self, share: int = 1) -> None:
        """Wait until `share` of them (at most all) are free; `release` as many whatever happens."""
        place = (min(share, self.count), asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._grant()
        try:
            await place[1]
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
                self._grant()
            elif not place[1].cancelled():  # granted already, but the caller is gone
                self.release(share)
            raise

    def release(self, share: int = 1) -> None:
        """Give `share` threads back."""
        self.free += min(share, self.count)
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
        while self._waiting and self._waiting[0][0] <= self.free:
            share, future = self._waiting.popleft()
            if not future.done():
                self.free -= share
                future.set_result(None)


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
