"""One rendering of the metrics for all scrapes that wait for one."""

import asyncio
import time
from collections.abc import Callable

# Of the time, renderings take at most one part of so many, however many clients scrape.
PARTS = 4


class SharedScrape:
    """A scrape that comes while the metrics are rendered waits for the next rendering, with all others that do: nobody
    gets what is older than the question.

    prepare: called in the event loop before each rendering; render: called in a thread.
    """

    def __init__(self, prepare: Callable[[], None], render: Callable[[], bytes]) -> None:
        self._prepare, self._render = prepare, render
        self._next: asyncio.Task[bytes] | None = None
        self._turn = asyncio.Lock()
        self._not_before = 0.0

    async def text(self) -> bytes:
        """The metrics, as they are now or a little later."""
        if self._next is None:
            self._next = asyncio.create_task(self._rendered())
        return await asyncio.shield(self._next)  # one client that leaves takes nothing from the others

    async def _rendered(self) -> bytes:
        async with self._turn:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            self._next = None  # who comes from now on waits for another one
            self._prepare()
            began = time.monotonic()
            try:
                return await asyncio.to_thread(self._render)
            finally:
                ended = time.monotonic()
                self._not_before = ended + (PARTS - 1) * (ended - began)
