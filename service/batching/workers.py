"""The threads that compute, shared by all models, and who may use them next."""

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


class Workers:
    """`count` processors. A batcher asks for as many as its network computes with before it forms a batch, so that a
    batch grows while they are busy.

    First come, first served: no model starves another, also not one that asks for more of them at once.

    `clock` gives monotonic seconds, to tell for how long something has been computed.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = self._free = count
        self._clock = clock
        self._started: dict[asyncio.Future[Any], float] = {}  # when, the oldest first
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        for number in range(count):
            threading.Thread(target=_work, args=(self._jobs,), name=f"compute_{number}", daemon=True).start()

    @property
    def oldest_seconds(self) -> float:
        """For how long the oldest computation that still runs has been running; 0 where nothing is computed."""
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
            elif not place[1].cancelled():  # they were granted, and nobody is here to take them
                self.release(share)
            raise

    def release(self, share: int = 1) -> None:
        """Give them back."""
        self._free += min(share, self.count)
        self._grant()

    async def run(self, function: Callable[[], T]) -> T:
        """Call `function` in a thread; for who has acquired a share.

        As `run_in_executor` does, without the second future that is chained to the first: what is computed here is
        often no longer than what that takes.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._started[future] = self._clock()
        self._jobs.put((function, loop, functools.partial(self._settle, future)))
        return await future

    def shutdown(self) -> None:
        """End the threads; what still runs in them is not waited for."""
        for _ in range(self.count):
            self._jobs.put(None)

    def _settle(self, future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
        del self._started[future]
        if future.done():  # nobody waits for it any more
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def _grant(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            share, future = self._waiting.popleft()
            if not future.done():
                self._free -= share
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
