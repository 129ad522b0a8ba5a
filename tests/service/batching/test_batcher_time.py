"""The batcher's times: deadlines, company, when to come again, and who gets the cheaper answer. Time by hand."""

import asyncio

import numpy as np
import pytest

from demur.service.batching import Batch, DeadlineExceeded, QueueFull
from demur.service.batching.errors import SLOW_SECONDS, CancelledWhileSlow
from tests.support.batching import Gate, ManualClock, batcher, held, numbers, run, settle, until
from tests.support.freed import frees


def test_a_full_queue_refuses_at_once_and_says_when_to_come_again() -> None:
    async def test() -> None:
        gate, clock = Gate(), ManualClock()
        batches = batcher(gate, rows=2, queue=3, clock=clock)
        first = await held(gate, batches)
        waiting = asyncio.create_task(batches.submit(numbers(1, 2, 3)))
        await settle()
        with pytest.raises(QueueFull) as full:
            await batches.submit(numbers(4))
        assert (full.value.rows, full.value.limit, full.value.retry_after_seconds) == (3, 3, 1.0)
        clock.advance(2.0)
        gate.open()
        await asyncio.gather(first, waiting)
        await batches.close()

    run(test)


@pytest.mark.parametrize(("others", "expected"), [(0, [[1, 2, 3]]), (1, [[1, 2], [3]])])
def test_batches_are_short_where_other_models_use_the_threads_too(others: int, expected: list[list[int]]) -> None:
    async def test() -> None:
        gate = Gate()
        batches = batcher(gate, short_rows=2, others=others)
        first = await held(gate, batches)
        waiting = [asyncio.create_task(batches.submit(numbers(value))) for value in (1, 2, 3)]
        await settle()
        gate.open()
        await asyncio.gather(first, *waiting)
        assert gate.batches[1:] == expected
        await batches.close()

    run(test)


def test_the_time_to_come_again_follows_the_speed() -> None:
    async def test() -> None:
        gate, clock = Gate(), ManualClock()
        batches = batcher(gate, rows=1, queue=30, clock=clock)
        first = await held(gate, batches)
        clock.advance(0.5)  # one row in half a second
        gate.open()
        await first
        second = asyncio.create_task(batches.submit(numbers(1)))
        gate.close()
        await until(lambda: len(gate.batches) == 2)
        waiting = asyncio.create_task(batches.submit(np.zeros(30)))
        await settle()
        with pytest.raises(QueueFull) as full:
            await batches.submit(numbers(4))
        assert full.value.retry_after_seconds == pytest.approx(15.0)
        gate.open()
        await asyncio.gather(second, waiting)
        await batches.close()

    run(test)


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [(SLOW_SECONDS, False), (SLOW_SECONDS + 0.01, True)],
)
def test_who_leaves_says_whether_the_service_was_slow(seconds: float, slow: bool) -> None:
    async def test() -> None:
        gate, clock = Gate(), ManualClock()
        batches = batcher(gate, clock=clock)
        first = await held(gate, batches)

        async def ask() -> type[BaseException] | None:
            try:
                await batches.submit(numbers(1))
            except asyncio.CancelledError as error:
                return type(error)
            return None

        leaving = asyncio.create_task(ask())
        await settle()
        clock.advance(seconds)
        leaving.cancel()
        assert await leaving is (CancelledWhileSlow if slow else asyncio.CancelledError)
        assert batches.queue_rows == 0
        gate.open()
        await first
        await batches.close()

    run(test)


def test_a_deadline_is_kept_while_a_request_waits() -> None:
    async def test() -> None:
        gate, clock = Gate(), ManualClock()
        batches = batcher(gate, clock=clock)
        first = await held(gate, batches)
        short = asyncio.create_task(batches.submit(numbers(1), deadline=1.0))
        long = asyncio.create_task(batches.submit(numbers(2), deadline=3.0))
        await settle()
        clock.advance(1.0)
        with pytest.raises(DeadlineExceeded):
            await short
        assert batches.queue_rows == 1
        gate.open()
        assert (await long).result.values.tolist() == [4]
        assert gate.batches == [[0], [2]]
        with pytest.raises(DeadlineExceeded):
            await batches.submit(numbers(1), deadline=0.5)
        await first
        assert clock.pending == 0
        await batches.close()

    run(test)


@pytest.mark.parametrize(
    ("rows", "computing", "allowed", "slow"),
    [(30, 0.0, 0.1, True), (3, 0.0, 0.1, False), (3, 0.5, 0.1, True), (30, 0.0, 0.05, False)],
    ids=["many wait", "few wait", "a long computation", "too little time even for an idle machine"],
)
def test_a_missed_deadline_says_whether_the_service_was_slow(
    rows: int, computing: float, allowed: float, slow: bool
) -> None:
    """A row takes a tenth of a second: thirty wait for three, and three for less than the objective of half a one."""

    async def test() -> None:
        gate, clock = Gate(), ManualClock()
        batches = batcher(gate, clock=clock, rows=2)
        first = await held(gate, batches)
        clock.advance(0.1)
        gate.open()
        await first
        gate.close()
        busy = asyncio.create_task(batches.submit(numbers(0)))
        await until(lambda: len(gate.batches) == 2)
        waiting = asyncio.create_task(batches.submit(np.zeros(rows)))
        clock.advance(computing)
        short = asyncio.create_task(batches.submit(numbers(1), deadline=clock.now + 1.01 * allowed))
        await settle()
        clock.advance(1.01 * allowed)
        with pytest.raises(DeadlineExceeded) as missed:
            await short
        assert missed.value.slow is slow
        gate.open()
        await asyncio.gather(busy, waiting)
        await batches.close()

    run(test)


def test_a_deadline_is_kept_while_a_request_is_computed() -> None:
    """Also where the computation never ends; its other requests have their own deadlines, and closing goes on."""

    async def test() -> None:
        gate, clock = Gate(), ManualClock()
        batches = batcher(gate, clock=clock, rows=2)
        first = await held(gate, batches)
        short = asyncio.create_task(batches.submit(numbers(1, 2, 3), deadline=1.0))
        long = asyncio.create_task(batches.submit(numbers(4), deadline=3.0))
        gate.open()
        await first
        gate.close()
        await until(lambda: len(gate.batches) == 2)
        clock.advance(1.0)
        with pytest.raises(DeadlineExceeded, match="while the request was computed"):
            await short
        assert batches.queue_rows == 1  # what was left of it waits no longer
        clock.advance(2.0)
        with pytest.raises(DeadlineExceeded, match="while the request waited"):
            await long
        assert batches.queue_rows == clock.pending == 0
        gate.open()
        await batches.close()

    run(test)


def test_times_are_told() -> None:
    async def test() -> None:
        gate, clock, observed = Gate(), ManualClock(), list[Batch]()
        batches = batcher(gate, clock=clock, observe=observed.append)
        first = await held(gate, batches)
        second = asyncio.create_task(batches.submit(numbers(1, 2)))
        await settle()
        clock.advance(3.0)
        gate.open()
        one, two = await asyncio.gather(first, second)
        assert (one.queue_seconds, one.compute_seconds) == (0.0, 3.0)
        assert (two.queue_seconds, two.compute_seconds) == (3.0, 0.0)
        assert [(batch.rows, batch.requests) for batch in observed] == [(1, 1), (2, 1)]
        await batches.close()

    run(test)


def test_time_in_batches_at_once_counts_once() -> None:
    async def test() -> None:
        gate, clock = Gate(), ManualClock()
        gate.close()
        batches = batcher(gate, clock=clock, rows=8, threads=2)
        asked = asyncio.create_task(batches.submit(numbers(*range(16))))
        await settle()
        clock.advance(3.0)
        gate.open()
        answered = await asked
        assert answered.result.values.tolist() == [2 * value for value in range(16)]
        assert (len(gate.batches), answered.compute_seconds) == (2, 3.0)
        await batches.close()

    run(test)


def test_what_misses_its_deadline_is_free_at_once() -> None:
    async def test() -> None:
        gate, clock = Gate(), ManualClock()
        batches = batcher(gate, clock=clock)
        first = await held(gate, batches)

        async def pass_time() -> None:
            await settle()
            clock.advance(6)

        passing = asyncio.create_task(pass_time())
        assert await frees(lambda: batches.submit(numbers(1), 5.0), DeadlineExceeded)
        gate.open()
        await asyncio.gather(first, passing)
        await batches.close()

    run(test)
