"""One rendering of the metrics for all scrapes that wait for one."""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

# Of the time, renderings take at most one part of so many, however many clients scrape.
PARTS = 4
F = TypeVar("F", bound=Hashable)


class SharedScrape(Generic[F]):
    """A scrape that comes while the metrics are rendered waits for the next rendering, with all others that do and want
    the same format: nobody gets what is older than the question.

    prepare: called in the event loop before each rendering; render: called in a thread, with the format.
    """

    def __init__(self, prepare: Callable[[], None], render: Callable[[F], bytes]) -> None:
        self._prepare, self._render = prepare, render
        self._next: dict[F, asyncio.Task[bytes]] = {}
        self._turn = asyncio.Lock()
        self._not_before = 0.0

    async def text(self, wanted: F) -> bytes:
        """The metrics, as they are now or a little later."""
        if wanted not in self._next:
            self._next[wanted] = asyncio.create_task(self._rendered(wanted))
        return await asyncio.shield(self._next[wanted])  # one client that leaves takes nothing from the others

    async def _rendered(self, wanted: F) -> bytes:
        async with self._turn:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            del self._next[wanted]  # who comes from now on waits for another one
            self._prepare()
            began = time.monotonic()
            try:
                return await asyncio.to_thread(self._render, wanted)
            finally:
                ended = time.monotonic()
                self._not_before = ended + (PARTS - 1) * (ended - began)
