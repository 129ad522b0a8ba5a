"""The threads that compute, shared by all models, and who may use one next."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Workers:
    """`count` threads. A batcher asks for one before it forms a batch, so that a batch grows while all are busy.

    First come, first served: no model starves another.
    """

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="compute")

    async def acquire(self) -> None:
        """Wait for a free thread; `release` it whatever happens."""
        await self._free.acquire()

    def release(self) -> None:
        """Give it back."""
        self._free.release()

    async def run(self, function: Callable[[], T]) -> T:
        """Call `function` in a thread; for who has acquired one."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def shutdown(self) -> None:
        """End the threads; what still runs in them is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
