"""Shares of the threads are never overdrawn, never lost, and granted in turn."""

import asyncio
import threading

import pytest

from demur.service.batching.compute_threads import ComputeThreads, Member
from tests.support.batching import ManualClock, settle, until


def test_shares_are_given_in_order_also_large_ones() -> None:
    async def test() -> None:
        threads, order = ComputeThreads(3), list[str]()
        pair, three = threads.join(2), threads.join(3)

        async def work(name: str, member: Member) -> None:
            await threads.acquire(member)
            order.append(name)

        await work("first", pair)
        tasks = [
            asyncio.create_task(work(*one))
            for one in (("large", three), ("small", threads.join()), ("other", threads.join()))
        ]
        await settle()
        assert order == ["first"]  # one is free, but the large one came first
        threads.release(pair, 2)
        await settle()
        assert order == ["first", "large"]
        threads.release(three, 3)
        await asyncio.gather(*tasks)
        assert order == ["first", "large", "small", "other"]
        assert threads.free == 1
        threads.shutdown()

    asyncio.run(test())


def test_who_has_waited_for_its_turn_longest_comes_next() -> None:
    """However long others have stood in line already."""

    async def test() -> None:
        threads, order = ComputeThreads(1), list[str]()
        busy, other, seldom = (threads.join() for _ in range(3))

        async def work(name: str, member: Member) -> None:
            held = await threads.acquire(member)
            order.append(name)
            await settle()
            threads.release(member, held)

        for name, member in (("other", other), ("busy", busy)):
            await work(name, member)
        await threads.acquire(busy)
        line = [("busy", busy), ("busy", busy), ("other", other), ("seldom", seldom), ("other", other)]
        tasks = [asyncio.create_task(work(*one)) for one in line]
        await settle()
        threads.release(busy, 1)
        await asyncio.gather(*tasks)
        assert order[2:] == ["seldom", "other", "busy", "other", "busy"]
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
        member = threads.join(5)
        assert await threads.acquire(member) == 2
        assert threads.free == 0
        threads.release(member, 2)
        assert threads.free == 2
        threads.shutdown()

    asyncio.run(test())


@pytest.mark.parametrize("granted", [False, True])
def test_who_is_cancelled_leaves_the_place_to_the_next(granted: bool) -> None:
    async def test() -> None:
        threads = ComputeThreads(2)
        member, other = threads.join(2), threads.join()
        await threads.acquire(member)
        waits = asyncio.create_task(threads.acquire(threads.join(2)))
        after = asyncio.create_task(threads.acquire(other))
        await settle()
        if granted:  # and cancelled before it could take notice
            threads.release(member, 2)
            waits.cancel()
        else:
            waits.cancel()
            threads.release(member, 2)
        await asyncio.wait_for(after, 5)
        with pytest.raises(asyncio.CancelledError):
            await waits
        assert threads.free == 1
        threads.shutdown()

    asyncio.run(test())


def test_those_that_compute_long_leave_one_thread_to_others() -> None:
    async def test() -> None:
        threads, order = ComputeThreads(3), list[str]()

        async def work(name: str, member: Member) -> int:
            held = await threads.acquire(member)
            order.append(name)
            return held

        long, other = threads.join(9, long=True), threads.join(3, long=True)
        assert await work("alone", long) == 3  # without others it may have all
        threads.release(long, 3)
        short = threads.join()
        assert await work("long", long) == 2
        waits = asyncio.create_task(work("other", other))
        await settle()
        assert await work("short", short) == 1  # passes the one that waits
        blocked = asyncio.create_task(work("short again", short))
        await settle()
        assert order == ["alone", "long", "short"]
        threads.release(short, 1)
        assert await blocked == 1
        threads.release(short, 1)
        threads.release(long, 2)
        assert await waits == 2
        threads.leave(short)
        threads.release(other, 2)
        assert (await work("alone again", other), threads.free) == (3, 0)
        threads.shutdown()

    asyncio.run(test())


def test_one_that_computes_long_is_not_starved_by_others() -> None:
    async def test() -> None:
        threads = ComputeThreads(2)
        long, short = threads.join(2, long=True), threads.join()
        assert [await threads.acquire(short) for _ in range(2)] == [1, 1]
        later = asyncio.create_task(threads.acquire(short))
        waits = asyncio.create_task(threads.acquire(long))
        await settle()
        threads.release(short, 1)
        assert await waits == 1  # it is its turn
        await settle()
        assert not later.done()
        threads.release(short, 1)
        assert await later == 1
        threads.shutdown()

    asyncio.run(test())


def test_a_single_thread_is_shared_in_turns() -> None:
    async def test() -> None:
        threads = ComputeThreads(1)
        long, short = threads.join(2, long=True), threads.join()
        assert await threads.acquire(long) == 1
        waits = asyncio.create_task(threads.acquire(short))
        await settle()
        assert not waits.done()
        threads.release(long, 1)
        assert await waits == 1
        threads.shutdown()

    asyncio.run(test())
