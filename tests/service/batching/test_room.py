"""Room in the queue: in the order of arrival, for a while, and given back whatever happens. Time by hand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from demur.service.batching.errors import SLOW_SECONDS, CancelledWhileSlow, QueueFull
from demur.service.batching.queue import Item, Limits, RowQueue
from demur.service.batching.room import PATIENCE_SECONDS, Room
from tests.support.batching import ManualClock, run, settle

LATER = 60.0


class Waiting:
    """A queue with requests that wait for its room, and what became of them."""

    def __init__(self, most: int = 4) -> None:
        self.queue, self.clock = RowQueue(Limits(8, most)), ManualClock()
        self.room = Room(self.queue, self.clock, lambda: 7.0)
        self.inside: list[int] = []
        self.waits: list[float] = []

    def ask(self, rows: int, until: asyncio.Event | None = None, deadline: float = LATER) -> asyncio.Task[None]:
        """Hold the room until the event is set."""

        async def hold() -> None:
            with await self.room.reserve(rows, deadline, contextlib.nullcontext) as waited:
                self.inside.append(rows)
                self.waits.append(waited)
                if until is not None:
                    await until.wait()

        return asyncio.create_task(hold())


def test_room_is_given_in_the_order_of_arrival_and_only_where_it_is() -> None:
    async def test() -> None:
        waiting, end = Waiting(), asyncio.Event()
        first = waiting.ask(3, end)
        await settle()
        others = [waiting.ask(rows) for rows in (4, 1, 2)]
        await settle()
        assert waiting.inside == [3]  # one row would fit, but who came first is first
        waiting.clock.advance(0.25)
        end.set()
        await asyncio.gather(first, *others)
        assert waiting.inside == [3, 4, 1, 2]
        assert waiting.waits == [0.0, 0.25, 0.25, 0.25]
        assert (waiting.queue.promised, waiting.clock.pending) == (0, 0)

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
            with await waiting.room.reserve(3, LATER, contextlib.nullcontext):
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
        large, small = waiting.ask(4, deadline=deadline), waiting.ask(1)
        await settle()
        waiting.clock.advance(min(deadline, PATIENCE_SECONDS) - 0.01)
        await settle()
        assert not large.done()
        waiting.clock.advance(0.02)
        with pytest.raises(QueueFull) as full:
            await large
        assert (full.value.rows, full.value.limit, full.value.retry_after_seconds) == (3, 4, 7.0)
        await small  # there was room for it, but not its turn
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
        other = waiting.ask(2, end)
        await settle()
        waiting.queue.take(0.0)
        if before:
            leaving.cancel()
        waiting.room.advance()
        leaving.cancel()
        await settle()
        assert (waiting.inside, waiting.queue.promised) == ([2], 2)
        end.set()
        await other

    run(test)


def test_it_waits_where_the_client_is_attended_to() -> None:
    async def test() -> None:
        waiting, blocks = Waiting(), []

        @contextlib.asynccontextmanager
        async def attended() -> AsyncIterator[None]:
            blocks.append("begun")
            yield
            blocks.append("ended")

        with await waiting.room.reserve(4, LATER, attended):
            assert blocks == []  # nobody waits
            second = asyncio.create_task(waiting.room.reserve(4, LATER, attended))
            await settle()
            assert blocks == ["begun"]
        with await second:
            assert blocks == ["begun", "ended"]

    run(test)
