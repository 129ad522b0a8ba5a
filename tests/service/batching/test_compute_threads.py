"""Shares of the threads are never overdrawn, never lost, and granted in the order of the requests."""

import asyncio
import threading

import pytest

from probity.service.batching import ComputeThreads
from tests.support.batching import ManualClock, settle, until


def test_shares_are_given_in_order_also_large_ones() -> None:
    async def test() -> None:
        threads, order = ComputeThreads(3), list[str]()

        async def work(name: str, share: int) -> None:
            await threads.acquire(share)
            order.append(name)

        await work("first", 2)
        tasks = [asyncio.create_task(work(*one)) for one in (("large", 3), ("small", 1), ("other", 1))]
        await settle()
        assert order == ["first"]  # one is free, but the large one came first
        threads.release(2)
        await settle()
        assert order == ["first", "large"]
        threads.release(3)
        await asyncio.gather(*tasks)
        assert order == ["first", "large", "small", "other"]
        assert threads.free == 1
        threads.shutdown()

    asyncio.run(test())


def test_the_age_of_what_is_computed_is_known_until_it_ends() -> None:
    """Also where the caller is gone."""

    async def test() -> None:
        clock, ended = ManualClock(), threading.Event()
        threads = ComputeThreads(2, clock.time)
        assert threads.oldest_seconds == 0
        waits = asyncio.create_task(threads.run(ended.wait))
        await settle()
        clock.advance(5)
        assert await threads.run(lambda: threads.oldest_seconds) == 5
        waits.cancel()
        await settle()
        clock.advance(2)
        assert threads.oldest_seconds == 7
        ended.set()
        await until(lambda: threads.oldest_seconds == 0)
        threads.shutdown()

    asyncio.run(test())


def test_a_share_larger_than_all_is_all() -> None:
    async def test() -> None:
        threads = ComputeThreads(2)
        assert await threads.acquire(5) == 2
        assert threads.free == 0
        threads.release(2)
        assert threads.free == 2
        threads.shutdown()

    asyncio.run(test())


@pytest.mark.parametrize("granted", [False, True])
def test_who_is_cancelled_leaves_the_place_to_the_next(granted: bool) -> None:
    async def test() -> None:
        threads = ComputeThreads(2)
        await threads.acquire(2)
        waits = asyncio.create_task(threads.acquire(2))
        after = asyncio.create_task(threads.acquire(1))
        await settle()
        if granted:  # and cancelled before it could take notice
            threads.release(2)
            waits.cancel()
        else:
            waits.cancel()
            threads.release(2)
        await asyncio.wait_for(after, 5)
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert threads.free == 1
        threads.shutdown()

    asyncio.run(test())


def test_those_that_compute_long_leave_one_thread_to_others() -> None:
    async def test() -> None:
        threads, order = ComputeThreads(3), list[str]()

        async def work(name: str, share: int, long: bool) -> int:
            held = await threads.acquire(share, long)
            order.append(name)
            return held

        threads.join(long=True)
        assert await work("alone", 9, long=True) == 3  # without others it may have all
        threads.release(3, long=True)
        threads.join(long=False)
        assert await work("long", 3, long=True) == 2
        waits = asyncio.create_task(work("long again", 3, long=True))
        await settle()
        assert await work("short", 1, long=False) == 1  # passes the one that waits
        blocked = asyncio.create_task(work("short again", 1, long=False))
        await settle()
        assert order == ["alone", "long", "short"]
        threads.release(1)
        assert await blocked == 1
        threads.release(1)
        threads.release(2, long=True)
        assert await waits == 2
        threads.leave(long=False)
        threads.release(2, long=True)
        assert (await work("alone again", 3, long=True), threads.free) == (3, 0)
        threads.shutdown()

    asyncio.run(test())


def test_one_that_computes_long_is_not_starved_by_others() -> None:
    async def test() -> None:
        threads = ComputeThreads(2)
        for long in (True, False):
            threads.join(long)
        assert [await threads.acquire() for _ in range(2)] == [1, 1]
        waits = asyncio.create_task(threads.acquire(2, long=True))
        later = asyncio.create_task(threads.acquire())
        await settle()
        threads.release()
        assert await waits == 1  # it came first
        await settle()
        assert not later.done()
        threads.release()
        assert await later == 1
        threads.shutdown()

    asyncio.run(test())


def test_a_single_thread_is_shared_in_order() -> None:
    async def test() -> None:
        threads = ComputeThreads(1)
        for long in (True, False):
            threads.join(long)
        assert await threads.acquire(2, long=True) == 1
        short = asyncio.create_task(threads.acquire())
        await settle()
        assert not short.done()
        threads.release(1, long=True)
        assert await short == 1
        threads.shutdown()

    asyncio.run(test())
