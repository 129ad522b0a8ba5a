"""Shares of the workers are never overdrawn, never lost, and granted in the order of the requests."""

import asyncio
import threading

import pytest

from service.batching import Workers
from tests.support.batching import ManualClock, settle, until


def test_shares_are_given_in_order_also_large_ones() -> None:
    async def test() -> None:
        workers, order = Workers(3), list[str]()

        async def work(name: str, share: int) -> None:
            await workers.acquire(share)
            order.append(name)

        await work("first", 2)
        tasks = [asyncio.create_task(work(*one)) for one in (("large", 3), ("small", 1), ("other", 1))]
        await settle()
        assert order == ["first"]  # one is free, but the large one came first
        workers.release(2)
        await settle()
        assert order == ["first", "large"]
        workers.release(3)
        await asyncio.gather(*tasks)
        assert order == ["first", "large", "small", "other"]
        assert workers.free == 1
        workers.shutdown()

    asyncio.run(test())


def test_the_age_of_what_is_computed_is_known_until_it_ends() -> None:
    """Also where the caller is gone."""

    async def test() -> None:
        clock, ended = ManualClock(), threading.Event()
        workers = Workers(2, clock.time)
        assert workers.oldest_seconds == 0
        waits = asyncio.create_task(workers.run(ended.wait))
        await settle()
        clock.advance(5)
        assert await workers.run(lambda: workers.oldest_seconds) == 5
        waits.cancel()
        await settle()
        clock.advance(2)
        assert workers.oldest_seconds == 7
        ended.set()
        await until(lambda: workers.oldest_seconds == 0)
        workers.shutdown()

    asyncio.run(test())


def test_a_share_larger_than_all_is_all() -> None:
    async def test() -> None:
        workers = Workers(2)
        await workers.acquire(5)
        assert workers.free == 0
        workers.release(5)
        assert workers.free == 2
        workers.shutdown()

    asyncio.run(test())


@pytest.mark.parametrize("granted", [False, True])
def test_who_is_cancelled_leaves_the_place_to_the_next(granted: bool) -> None:
    async def test() -> None:
        workers = Workers(2)
        await workers.acquire(2)
        waits = asyncio.create_task(workers.acquire(2))
        after = asyncio.create_task(workers.acquire(1))
        await settle()
        if granted:  # and cancelled before it could take notice
            workers.release(2)
            waits.cancel()
        else:
            waits.cancel()
            workers.release(2)
        await asyncio.wait_for(after, 5)
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert workers.free == 1
        workers.shutdown()

    asyncio.run(test())
