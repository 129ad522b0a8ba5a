"""Room in the queue: for who fits and came first, for a while, and given back whatever happens. Time by hand."""

import asyncio

import pytest

from demur.service.batching.errors import SLOW_SECONDS, CancelledWhileSlow, QueueFull
from demur.service.batching.queue import Item, Limits, RowQueue
from demur.service.batching.room import PATIENCE_SECONDS, Place, Room
from tests.support.batching import ManualClock, run, settle
from tests.support.freed import frees

LATER = 60.0


class Waiting:
    """A queue with requests that wait for its room, and what became of them."""

    def __init__(self, most: int = 4) -> None:
        self.queue, self.clock = RowQueue(Limits(8, most)), ManualClock()
        self.room = Room(self.queue, self.clock, lambda: 7.0)
        self.inside: list[int] = []
        self.waits: list[float] = []

    def ask(
        self, rows: int, until: asyncio.Event | None = None, deadline: float = LATER, *, stays: bool = True
    ) -> asyncio.Task[None]:
        """Hold the room until the event is set."""

        async def hold() -> None:
            place = Place(self.room, rows)
            if not place.take():
                await place.wait(deadline, stays=stays)
            with place:
                self.inside.append(rows)
                self.waits.append(place.waited)
                if until is not None:
                    await until.wait()

        return asyncio.create_task(hold())


def test_room_is_given_in_the_order_of_arrival() -> None:
    async def test() -> None:
        waiting, end = Waiting(), asyncio.Event()
        first = waiting.ask(3, end)
        await settle()
        others = [waiting.ask(rows) for rows in (4, 3, 2)]
        await settle()
        assert waiting.inside == [3]
        waiting.clock.advance(0.25)
        end.set()
        await asyncio.gather(first, *others)
        assert waiting.inside == [3, 4, 3, 2]
        assert waiting.waits == [0.0, 0.25, 0.25, 0.25]
        assert (waiting.queue.promised, waiting.room.turns, waiting.clock.pending) == (0, {}, 0)

    run(test)


def test_who_fits_does_not_wait_for_who_does_not() -> None:
    async def test() -> None:
        waiting, ends = Waiting(), [asyncio.Event() for _ in range(2)]
        first = [waiting.ask(2, end) for end in ends]
        await settle()
        others = [waiting.ask(rows) for rows in (4, 3, 2)]
        await settle()
        ends[0].set()
        await settle()
        assert waiting.inside == [2, 2, 2]
        await waiting.ask(1)
        assert waiting.inside == [2, 2, 2, 1]
        ends[1].set()
        await asyncio.gather(*first, *others)
        assert waiting.inside == [2, 2, 2, 1, 4, 3]

    run(test)


def test_who_may_not_stay_is_refused_all_the_same_and_no_sooner() -> None:
    async def test() -> None:
        waiting, end = Waiting(), asyncio.Event()
        first = waiting.ask(4, end)
        await settle()
        other = waiting.ask(1, stays=False)
        await settle()
        end.set()
        await first
        waiting.clock.advance(PATIENCE_SECONDS - 0.01)
        await settle()
        assert not other.done()
        waiting.clock.advance(0.02)
        with pytest.raises(QueueFull):
            await other
        assert waiting.queue.promised == 0

    run(test)


def test_where_nobody_has_room_anybody_gets_it() -> None:
    async def test() -> None:
        waiting = Waiting()
        await waiting.ask(99)
        assert waiting.waits == [0.0]

    run(test)


def test_room_that_a_request_takes_in_the_queue_is_given_to_no_other() -> None:
    async def test() -> None:
        waiting, end = Waiting(), asyncio.Event()

        async def decoded() -> None:
            place = Place(waiting.room, 3)
            assert place.take()
            with place:
                await end.wait()
            waiting.queue.admit(Item(3), 0.0)

        first = asyncio.create_task(decoded())
        await settle()
        other = waiting.ask(2)
        await settle()
        end.set()
        await settle()
        assert (waiting.inside, waiting.queue.rows) == ([], 3)
        waiting.queue.take(0.0)
        waiting.room.advance()
        await asyncio.gather(first, other)
        assert waiting.inside == [2]

    run(test)


@pytest.mark.parametrize("deadline", [LATER, PATIENCE_SECONDS / 2])
def test_nobody_waits_for_ever_nor_beyond_the_deadline(deadline: float) -> None:
    async def test() -> None:
        waiting, end = Waiting(), asyncio.Event()
        first = waiting.ask(3, end)
        await settle()
        large = waiting.ask(4, deadline=deadline)
        await settle()
        waiting.clock.advance(min(deadline, PATIENCE_SECONDS) - 0.01)
        await settle()
        assert not large.done()
        waiting.clock.advance(0.02)
        with pytest.raises(QueueFull) as full:
            await large
        assert (full.value.rows, full.value.limit, full.value.retry_after_seconds) == (3, 4, 7.0)
        end.set()
        await first
        assert waiting.queue.promised == 0

    run(test)


@pytest.mark.parametrize(("seconds", "slow"), [(0.0, False), (SLOW_SECONDS + 0.01, True)])
def test_who_leaves_takes_no_turn_and_says_whether_the_service_was_slow(seconds: float, slow: bool) -> None:
    async def test() -> None:
        waiting, end = Waiting(), asyncio.Event()
        first = waiting.ask(4, end)
        await settle()
        leaving, other = waiting.ask(4), waiting.ask(2)
        await settle()
        waiting.clock.advance(seconds)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError) as error:
            await leaving
        assert isinstance(error.value, CancelledWhileSlow) is slow
        end.set()
        await asyncio.gather(first, other)
        assert (waiting.inside, waiting.queue.promised) == ([4, 2], 0)

    run(test)


@pytest.mark.parametrize("before", [True, False])
def test_who_leaves_as_the_turn_comes_gives_it_back(before: bool) -> None:
    async def test() -> None:
        waiting, end = Waiting(), asyncio.Event()
        waiting.queue.admit(Item(4), 0.0)
        leaving = waiting.ask(4)
        await settle()
        other = waiting.ask(2, end)
        await settle()
        waiting.queue.take(0.0)
        if before:
            leaving.cancel()
        waiting.room.advance()
        leaving.cancel()
        await settle()
        assert (waiting.inside, waiting.queue.promised, waiting.room.turns) == ([2], 2, {})
        end.set()
        await other

    run(test)


def test_who_waits_in_vain_leaves_nothing_behind() -> None:
    async def test() -> None:
        waiting, end = Waiting(), asyncio.Event()
        first = waiting.ask(4, end)
        await settle()

        async def pass_time() -> None:
            await settle()
            waiting.clock.advance(PATIENCE_SECONDS)

        passing = asyncio.create_task(pass_time())
        assert await frees(lambda: Place(waiting.room, 4).wait(LATER), QueueFull)
        end.set()
        await asyncio.gather(first, passing)

    run(test)
