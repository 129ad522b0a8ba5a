"""The batcher: every request gets its own result, whatever happens to its neighbours. No sleeps, time by hand."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demur.service.batching import Batch, Closed, ComputeThreads
from demur.service.batching.batcher import DynamicBatcher
from demur.service.batching.queue import Limits
from tests.support.batching import Gate, Numbers, Poison, batcher, held, numbers, picky, run, settle, until


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
