"""A bug in one model's batcher: everybody who waits for it is told, and the others go on."""

import asyncio
from typing import Any

import pytest

from demur.service.batching import BatcherFailed, ComputeThreads
from demur.service.batching.batcher import DynamicBatcher
from demur.service.batching.queue import Limits, RowQueue
from tests.support.batching import Gate, Numbers, batcher, held, numbers, run, settle, until


class Bug(Exception):
    pass


def test_a_bug_in_the_loop_fails_everybody_at_once_and_for_good(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        gate = Gate()
        batches = batcher(gate)
        first = await held(gate, batches)

        def broken(_queue: RowQueue, _now: float, **_: object) -> Any:
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
