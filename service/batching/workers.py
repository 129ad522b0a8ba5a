"""The threads that compute, shared by all models, and who may use them next."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Workers:
    """`count` processors. A batcher asks for as many as its network computes with before it forms a batch, so that a
    batch grows while they are busy.

    First come, first served: no model starves another, also not one that asks for more of them at once.
    """

    def __init__(self, count: int) -> None:
        self.count = self._free = count
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="compute")

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
        """Call `function` in a thread; for who has acquired a share."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def shutdown(self) -> None:
        """End the threads; what still runs in them is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _grant(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            share, future = self._waiting.popleft()
            if not future.done():
                self._free -= share
                future.set_result(None)
