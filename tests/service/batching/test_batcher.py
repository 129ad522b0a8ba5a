"""The batcher: every request gets its own result, whatever happens to its neighbours. No sleeps, time by hand."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batching import Batch, BatcherFailed, Closed, ComputeThreads, DeadlineExceeded, Fallback, QueueFull
from service.batching.batcher import DynamicBatcher
from service.batching.queue import Limits, RowQueue
from tests.support.batching import (
    TIMEOUT,
    Gate,
    ManualClock,
    Numbers,
    Poison,
    batcher,
    numbers,
    picky,
    settle,
    until,
)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """An event loop of its own for each test, which ends in time and leaves nothing behind."""

    async def whole() -> None:
        async with asyncio.timeout(TIMEOUT):
            await test()

    asyncio.run(whole(), debug=False)


async def held(gate: Gate, batches: DynamicBatcher[Numbers]) -> "asyncio.Task[Any]":
    """A request that keeps the only worker busy until the gate is opened."""
    gate.close()
    task = asyncio.create_task(batches.submit(numbers(0)))
    await until(lambda: len(gate.batches) == 1)
    return task


def test_an_idle_worker_computes_at_once_and_a_busy_one_lets_the_batch_grow() -> None:
    async def test() -> None:
        gate = Gate()
        batches = batcher(gate, rows=4)
        first = await held(gate, batches)
        tasks = [asyncio.create_task(batches.submit(numbers(i, i + 0.5))) for i in (1, 2, 3)]
        await settle()
        assert batches.queue_rows == 6
        gate.open()
        answers = await asyncio.gather(first, *tasks)
        assert [answer.result.values.tolist() for answer in answers] == [[0], [2, 3], [4, 5], [6, 7]]
        assert gate.batches == [[0], [1, 1.5, 2, 2.5], [3, 3.5]]
        await batches.close()

    run(test)


def test_a_large_request_is_split_and_put_together() -> None:
    async def test() -> None:
        gate = Gate()
        batches = batcher(gate, rows=4, queue=5)
        answer = await batches.submit(np.arange(11.0))
        assert answer.result.values.tolist() == (2 * np.arange(11.0)).tolist()
        assert [len(batch) for batch in gate.batches] == [4, 4, 3]
        await batches.close()

    run(test)


def test_several_workers_may_finish_the_parts_in_any_order() -> None:
    async def test() -> None:
        batches = batcher(lambda x: Numbers(x * 2), rows=1, threads=3)
        answer = await batches.submit(np.arange(50.0))
        assert answer.result.values.tolist() == (2 * np.arange(50.0)).tolist()
        await batches.close()

    run(test)


@pytest.mark.parametrize("position", range(4))
def test_a_request_that_is_cancelled_leaves_the_queue_and_its_neighbours_alone(position: int) -> None:
    async def test() -> None:
        gate = Gate()
        batches = batcher(gate)
        first = await held(gate, batches)
        tasks = [asyncio.create_task(batches.submit(numbers(i))) for i in (1, 2, 3, 4)]
        await settle()
        tasks[position].cancel()
        await settle()
        assert batches.queue_rows == 3
        gate.open()
        answers = await asyncio.gather(first, *tasks, return_exceptions=True)
        for i, answer in enumerate(answers):
            if i == position + 1:
                assert isinstance(answer, asyncio.CancelledError)
            else:
                assert answer.result.values.tolist() == [2 * i]  # type: ignore[union-attr]
        assert position + 1 not in gate.batches[1]
        await batches.close()

    run(test)


@pytest.mark.parametrize("position", range(3))
def test_a_request_that_is_cancelled_while_it_is_computed_harms_nobody(position: int) -> None:
    async def test() -> None:
        gate = Gate()
        batches = batcher(gate)
        first = await held(gate, batches)
        tasks = [asyncio.create_task(batches.submit(numbers(i))) for i in (1, 2, 3)]
        await settle()
        gate.open()
        await first
        gate.close()
        await until(lambda: len(gate.batches) == 2)
        tasks[position].cancel()
        await settle()
        gate.open()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(answer, asyncio.CancelledError) for answer in answers) == 1
        assert batches.alive
        assert (await batches.submit(numbers(9))).result.values.tolist() == [18]
        await batches.close()

    run(test)


@pytest.mark.parametrize("position", range(3))
def test_a_poisoned_request_fails_alone(position: int) -> None:
    async def test() -> None:
        gate, observed = Gate(), list[Batch]()

        def compute(inputs: Any) -> Numbers:
            gate(inputs)
            return picky(inputs)

        batches = batcher(compute, observe=observed.append)
        first = await held(gate, batches)
        values = [1.0, 2.0, 3.0]
        values[position] = -1.0
        tasks = [asyncio.create_task(batches.submit(numbers(value))) for value in values]
        await settle()
        gate.open()
        answers = await asyncio.gather(first, *tasks, return_exceptions=True)
        for value, answer in zip(values, answers[1:], strict=True):
            if value < 0:
                assert isinstance(answer, Poison)
            else:
                assert answer.result.values.tolist() == [2 * value]  # type: ignore[union-attr]
        assert batches.alive
        await batches.close()

    run(test)


def test_a_bad_part_of_a_split_request_fails_the_whole_of_it_once() -> None:
    async def test() -> None:
        batches = batcher(picky, rows=2)
        with pytest.raises(Poison):
            await batches.submit(numbers(1, 2, -1, 3, 4, 5))
        assert batches.queue_rows == 0
        assert (await batches.submit(numbers(1))).result.values.tolist() == [2]
        await batches.close()

    run(test)


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


def test_company_is_waited_for_no_longer_than_allowed() -> None:
    async def test() -> None:
        gate, clock = Gate(), ManualClock()
        batches = batcher(gate, rows=3, delay=0.5, clock=clock)
        one = asyncio.create_task(batches.submit(numbers(1)))
        await settle()
        clock.advance(0.4)
        two = asyncio.create_task(batches.submit(numbers(2)))
        await settle()
        assert gate.batches == []
        clock.advance(0.1)
        await asyncio.gather(one, two)
        assert gate.batches == [[1, 2]]
        await asyncio.gather(*(batches.submit(numbers(i)) for i in (3, 4, 5)))  # a full batch waits for nobody
        assert gate.batches[1:] == [[3, 4, 5]]
        await batches.close()

    run(test)


def test_who_has_waited_too_long_gets_the_cheaper_answer() -> None:
    async def test() -> None:
        gate, clock, observed = Gate(), ManualClock(), list[Batch]()
        fallback = Fallback(lambda inputs: Numbers(-inputs), 1.0)
        batches = batcher(gate, clock=clock, fallback=fallback, observe=observed.append)
        first = await held(gate, batches)
        old = asyncio.create_task(batches.submit(numbers(1)))
        await settle()
        clock.advance(0.6)
        young = asyncio.create_task(batches.submit(numbers(2)))
        await settle()
        clock.advance(0.6)
        gate.open()
        answers = await asyncio.gather(first, old, young)
        assert [answer.result.values.tolist() for answer in answers] == [[0], [-1], [4]]
        assert [answer.degraded for answer in answers] == [False, True, False]
        assert [batch.degraded for batch in observed] == [False, True, False]
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


def test_closing_computes_what_was_admitted_and_refuses_the_rest() -> None:
    async def test() -> None:
        gate = Gate()
        batches = batcher(gate, rows=2)
        first = await held(gate, batches)
        tasks = [asyncio.create_task(batches.submit(numbers(i))) for i in range(1, 6)]
        await settle()
        closing = asyncio.create_task(batches.close())
        await settle()
        with pytest.raises(Closed):
            await batches.submit(numbers(9))
        assert not closing.done()
        gate.open()
        answers = await asyncio.gather(first, *tasks)
        assert [answer.result.values.tolist() for answer in answers] == [[2 * i] for i in range(6)]
        await closing

    run(test)


class Bug(Exception):
    pass


def test_a_bug_in_the_loop_fails_everybody_at_once_and_for_good(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        gate = Gate()
        batches = batcher(gate)
        first = await held(gate, batches)

        def broken(_queue: RowQueue, _now: float) -> Any:
            raise Bug("a bug")

        monkeypatch.setattr(RowQueue, "take", broken)
        waiting = asyncio.create_task(batches.submit(numbers(1)))
        await settle()
        gate.open()
        answers = await asyncio.gather(first, waiting, return_exceptions=True)
        assert answers[0].result.values.tolist() == [0]  # type: ignore[union-attr]
        assert isinstance(answers[1], BatcherFailed)
        assert not batches.alive
        assert batches.queue_rows == 0
        with pytest.raises(BatcherFailed):
            await batches.submit(numbers(2))
        await batches.close()

    run(test)
    assert "a bug" in caplog.text


def test_a_bug_in_one_model_leaves_the_worker_to_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        threads, limits = ComputeThreads(1), Limits(4, 10)
        observe_badly = DynamicBatcher(lambda x: Numbers(x), limits, threads, observe=lambda _: [][0])
        fine = DynamicBatcher(lambda x: Numbers(x * 2), limits, threads)
        await observe_badly.submit(numbers(1))
        await until(lambda: not observe_badly.alive)
        assert (await fine.submit(numbers(1))).result.values.tolist() == [2]
        assert fine.alive
        await asyncio.gather(observe_badly.close(), fine.close())

    run(test)
    assert "IndexError" in caplog.text


def test_models_take_turns() -> None:
    async def test() -> None:
        threads, limits, order = ComputeThreads(1), Limits(1, 100), list[str]()

        def noting(name: str) -> Callable[[Any], Numbers]:
            def compute(inputs: Any) -> Numbers:
                order.append(name)
                return Numbers(inputs)

            return compute

        greedy = DynamicBatcher(noting("greedy"), limits, threads)
        modest = DynamicBatcher(noting("modest"), limits, threads)
        many = [asyncio.create_task(greedy.submit(np.zeros(30)))]
        await settle()
        before = len(order)
        await modest.submit(numbers(1))
        assert order.index("modest") < before + 5
        await asyncio.gather(*many)
        await asyncio.gather(greedy.close(), modest.close())

    run(test)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.lists(st.floats(-1, 9), min_size=1, max_size=5), st.booleans()), max_size=15),
    st.integers(1, 6),
    st.integers(1, 3),
)
def test_whoever_stays_gets_the_answer_for_the_own_rows(
    requests: list[tuple[list[float], bool]], rows: int, threads: int
) -> None:
    async def test() -> None:
        batches = batcher(picky, rows=rows, queue=1000, threads=threads)
        tasks = [asyncio.create_task(batches.submit(numbers(*values))) for values, _ in requests]
        await asyncio.sleep(0)
        for task, (_, leaves) in zip(tasks, requests, strict=True):
            if leaves:
                task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for (values, leaves), answer in zip(requests, answers, strict=True):
            if isinstance(answer, asyncio.CancelledError):
                assert leaves
            elif min(values) < 0:
                assert isinstance(answer, Poison)
            else:
                assert answer.result.values.tolist() == [2 * value for value in values]  # type: ignore[union-attr]
        await batches.close()

    run(test)
