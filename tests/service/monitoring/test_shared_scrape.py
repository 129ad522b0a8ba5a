"""One rendering for all scrapes that wait, and never one that is older than the question."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from demur.service.monitoring.shared_scrape import SharedScrape


class Counted:
    """Renderings that show the counter as it was when they were prepared, and end when they may."""

    def __init__(self) -> None:
        self.counter = self.prepared = self.rendered = 0
        self.may_end = threading.Event()
        self.fails = False
        self.scrape = SharedScrape(self._prepare, self._render)

    def _prepare(self) -> None:
        self.prepared = self.counter

    def _render(self, wanted: str) -> bytes:
        assert wanted == "text"
        self.rendered += 1
        self.may_end.wait(60)
        if self.fails:
            raise OSError("no room")
        return str(self.prepared).encode()


async def turned(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


def test_those_that_wait_share_one_rendering_and_each_gets_what_was_there_when_it_asked() -> None:
    async def try_it() -> tuple[list[bytes], int]:
        counted = Counted()
        first = asyncio.create_task(counted.scrape.text("text"))
        await turned(lambda: counted.rendered == 1)
        counted.counter = 7
        others = [asyncio.create_task(counted.scrape.text("text")) for _ in range(100)]
        await asyncio.sleep(0)
        counted.may_end.set()
        return await asyncio.gather(first, *others), counted.rendered

    texts, rendered = asyncio.run(try_it())
    assert texts == [b"0"] + [b"7"] * 100
    assert rendered == 2


def test_a_client_that_leaves_takes_nothing_from_the_others() -> None:
    async def try_it() -> bytes:
        counted = Counted()
        leaves, stays = (asyncio.create_task(counted.scrape.text("text")) for _ in range(2))
        await turned(lambda: counted.rendered == 1)
        leaves.cancel()
        counted.may_end.set()
        return await stays

    assert asyncio.run(try_it()) == b"0"


def test_a_failure_is_told_and_the_next_scrape_is_rendered_again() -> None:
    async def try_it() -> bytes:
        counted = Counted()
        counted.may_end.set()
        counted.fails = True
        with pytest.raises(OSError, match="no room"):
            await counted.scrape.text("text")
        counted.fails = False
        return await counted.scrape.text("text")

    assert asyncio.run(try_it()) == b"0"
