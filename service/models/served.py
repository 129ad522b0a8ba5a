"""One loaded model behind its queue, with a count of the requests that still use it."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from ..batching import Answered, Batch, Clock, ComputeThreads, DynamicBatcher, Limits
from ..batching.room import Place
from ..format.text import printable
from ..inference.decision import Decision
from ..inference.predictor import Prediction, Predictor, check_finite
from ..monitoring.metrics import Metrics
from ..series.model_metrics import ModelMetrics
from ..settings import Settings
from .cpu_share import batches_at_once, share_of
from .rates import RateBounds

Array = npt.NDArray[Any]
log = logging.getLogger("demur")


class ServedModel:
    """A predictor behind a queue of its own. Make it in a running event loop."""

    def __init__(
        self,
        predictor: Predictor,
        settings: Settings,
        threads: ComputeThreads,
        metrics: Metrics,
        clock: Clock | None = None,
    ) -> None:
        self.predictor, self.manifest, self.digest = predictor, predictor.manifest, predictor.digest
        self.name, self.version = self.manifest.name, self.manifest.version
        self.metrics = ModelMetrics(metrics, predictor, settings.workers)
        self._bytes_a_row, self._most_rows = dict[str, float](), settings.max_rows  # by form, of the last body
        self._users, self._unused = 0, asyncio.Event()
        self._unused.set()
        self._rates = RateBounds.of(settings)
        each = predictor.graph.threads or threads.count
        self._batcher: DynamicBatcher[Prediction] = DynamicBatcher(
            predictor.predict,
            _limits(settings, predictor, each),
            threads,
            share=share_of(settings, each),
            long=predictor.takes_long,
            short_rows=predictor.short_rows,
            quick_rows=predictor.quick_rows,
            clock=clock,
            observe=self._note,
        )

    @property
    def alive(self) -> bool:
        """Whether requests are still computed."""
        return self._batcher.alive

    @property
    def queue_rows(self) -> int:
        """Rows that wait."""
        return self._batcher.queue_rows

    @contextlib.contextmanager
    def in_use(self) -> Iterator["ServedModel"]:
        """Keep the model until the block ends, even where another one has replaced it for new requests."""
        self._users += 1
        self._unused.clear()
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    def place(self, form: str, size: int) -> Place:
        """In the queue, for a body of this form and size, in bytes, by what rows of this form took so far."""
        expected = min(round(size / self._bytes_a_row.get(form, math.inf)), self._most_rows)
        return Place(self._batcher.room, max(1, expected))

    def decoded(self, form: str, size: int, rows: int) -> None:
        """Note that a body of this form had so many rows."""
        self._bytes_a_row[form] = size / rows

    def decision(self, rate: float | None) -> Decision:
        """What decides a request that asks for a false-reject rate (None: the model's own); raises `RateError`."""
        return self._rates.decision(self.predictor.decision, rate)

    async def predict(
        self,
        inputs: Array,
        deadline: float = math.inf,
        decision: Decision | None = None,
        *,
        observed: bool = True,
        waited: float = 0.0,
    ) -> Answered[Prediction]:
        """Predict `inputs` (B, *input_shape), B >= 1, of the bundle's dtype, through the queue.

        `decision`: in place of the model's own, which the metrics count by. observed: whether they, and the test for
        drift, see the examples. waited: seconds, for room in the queue.

        Raises what `DynamicBatcher.submit` raises, `NonFinitePrediction` and `NetworkError`.
        """
        answered = await self._batcher.submit(inputs, deadline)
        if waited:
            answered = replace(answered, queue_seconds=waited + answered.queue_seconds)
        if log.isEnabledFor(logging.DEBUG):
            self._log(answered)
        if answered.result.rejected.any():  # as everything is that is not finite
            check_finite(answered.result)
        if observed:
            self.metrics.answered(answered.result, answered.queue_seconds, inputs)
        if decision is None or decision is self.predictor.decision:
            return answered
        return replace(answered, result=decision.again(answered.result))

    def _log(self, answered: Answered[Prediction]) -> None:
        result = answered.result
        log.debug(
            "%s version %s: %d examples, %d rejected; waited %.1f ms, computed %.1f ms",
            *(printable(self.name), printable(self.version), len(result), int(result.rejected.sum())),
            *(1000 * answered.queue_seconds, 1000 * answered.compute_seconds),
        )

    async def retire(self) -> None:
        """Close the queue once no request uses the model any more."""
        await self._unused.wait()
        await self._batcher.close()
        self.metrics.finish()

    def _note(self, batch: Batch) -> None:
        self.metrics.batch_computed(batch)
        self.metrics.waiting(self.queue_rows)


def _limits(settings: Settings, predictor: Predictor, threads: int) -> Limits:
    """The queue's limits. The memory that the graph takes bounds the rows of a batch."""
    most = settings.max_batch_size or predictor.graph.chunk_rows
    return Limits(
        batch_rows=min(most, predictor.graph.chunk_rows),
        queue_rows=settings.max_queue_rows,
        at_once=batches_at_once(settings, threads),
    )
