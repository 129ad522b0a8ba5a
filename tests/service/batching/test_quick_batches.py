"""Batches that are computed on the event loop: so few rows that a thread would take longer to begin."""

import asyncio
import threading
from typing import Any

import pytest

from demur.service.batching import Batch, BatcherFailed, DeadlineExceeded
from tests.support.batching import Gate, ManualClock, Numbers, Poison, batcher, numbers, picky, run, settle, until


def test_what_arrives_together_is_one_batch_on_the_event_loop() -> None:
    async def test() -> None:
        here, seen, observed = threading.get_ident(), list[tuple[int, list[float]]](), list[Batch]()

        def compute(inputs: Any) -> Numbers:
            seen.append((threading.get_ident(), inputs.tolist()))
            return Numbers(inputs * 2)

        batches = batcher(compute, rows=16, quick_rows=12, observe=observed.append)
        answers = await asyncio.gather(*(batches.submit(numbers(i, i + 0.5)) for i in range(6)))
        assert [answer.result.values.tolist() for answer in answers] == [[2 * i, 2 * i + 1] for i in range(6)]
        assert seen == [(here, [i / 2 for i in range(12)])]
        assert [(batch.rows, batch.requests) for batch in observed] == [(12, 6)]
        assert observed[0].compute_seconds == answers[0].compute_seconds > 0
        await batches.close()

    run(test)


def test_more_rows_go_to_a_thread_and_a_busy_thread_holds_up_no_few() -> None:
    async def test() -> None:
        gate = Gate()
        gate.close()
        batches = batcher(lambda inputs: gate(inputs) if len(inputs) > 2 else picky(inputs), rows=4, quick_rows=2)
        large = asyncio.create_task(batches.submit(numbers(1, 2, 3)))
        await until(lambda: gate.batches == [[1, 2, 3]])
        assert (await batches.submit(numbers(4))).result.values.tolist() == [8]
        assert not large.done()
        gate.open()
        assert (await large).result.values.tolist() == [2, 4, 6]
        await batches.close()

    run(test)


def test_a_poisoned_request_fails_alone_here_too() -> None:
    async def test() -> None:
        batches = batcher(picky, quick_rows=8)
        sent = (batches.submit(numbers(value)) for value in (1, -1, 2))
        good, bad, other = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(bad, Poison)
        assert [answer.result.values.tolist() for answer in (good, other)] == [[2], [4]]  # type: ignore[union-attr]
        await batches.close()

    run(test)


def test_deadlines_hold_here_too() -> None:
    async def test() -> None:
        clock = ManualClock()
        batches = batcher(picky, quick_rows=2, clock=clock)
        await settle()
        waiting = [asyncio.create_task(batches.submit(numbers(1), deadline)) for deadline in (2.0, 3.0)]
        await asyncio.sleep(0)  # admitted, and not computed yet
        clock.advance(2.0)
        late, other = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(late, DeadlineExceeded)
        assert other.result.values.tolist() == [2]  # type: ignore[union-attr]
        assert (await batches.submit(numbers(1), 3.0)).result.values.tolist() == [2]
        assert clock.pending == 0
        await batches.close()

    run(test)


def test_a_bug_here_fails_everybody(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        batches = batcher(picky, quick_rows=2, observe=lambda _: [][0])
        assert (await batches.submit(numbers(1))).result.values.tolist() == [2]
        await settle()
        assert not batches.alive
        with pytest.raises(BatcherFailed):
            await batches.submit(numbers(1))
        await batches.close()

    run(test)
    assert "the batcher failed" in caplog.text
