"""The dynamic batcher: form a batch whenever a compute thread is idle, and give each request its own result."""

import asyncio
import contextvars
import functools
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from .clock import Clock, Timer
from .compute_threads import ComputeThreads
from .errors import SLOW_SECONDS, BatcherFailed, CancelledWhileSlow, Closed, DeadlineExceeded
from .pieces import RowError, Rows, compute_merged, join
from .queue import Item, Limits, NextBatch, Piece, RowQueue
from .room import Room

Array = npt.NDArray[Any]
R = TypeVar("R", bound=Rows)
RATE_MEMORY = 0.8  # weight of the past in the moving average of rows a second
log = logging.getLogger("demur")


@dataclass(frozen=True)
class Batch:
    """A computed batch, as the observer sees it."""

    rows: int
    requests: int
    compute_seconds: float


@dataclass(frozen=True)
class Answered(Generic[R]):
    """A request's result. queue_seconds: from admission until its first rows were taken; compute_seconds: how long
    the batches with its rows were computed."""

    result: R
    queue_seconds: float
    compute_seconds: float


@dataclass(eq=False)
class _Request(Item, Generic[R]):
    inputs: Array = field(kw_only=True)
    future: "asyncio.Future[Answered[R]]" = field(kw_only=True)
    parts: dict[int, R] = field(default_factory=dict)
    done_rows: int = 0
    first_taken: float = math.inf
    compute_seconds: float = 0.0
    computed_until: float = -math.inf
    timer: Timer | None = None

    def computed(self, start: float, end: float) -> None:
        """Note a batch with rows of this request; time in which several such batches ran counts once."""
        self.first_taken = min(self.first_taken, start)
        self.compute_seconds += max(0.0, end - max(start, self.computed_until))
        self.computed_until = max(end, self.computed_until)


class DynamicBatcher(Generic[R]):
    """Batches for one model: `compute` takes (B, ...) to a result of B rows.

    Make and use it in a running event loop. `share`: how many of the threads one batch uses; `long`: whether it does so
    for long. `short_rows`: where other models use the threads too, a batch has at most so many. `quick_rows`: where no
    more wait, they are computed on the event loop itself: for so few, to wait for a thread and for Python's lock takes
    longer than to compute. `clock` None: the event loop's. `observe` is called with every batch.
    """

    def __init__(
        self,
        compute: Callable[[Array], R],
        limits: Limits,
        threads: ComputeThreads,
        *,
        share: int = 1,
        long: bool = False,
        short_rows: int | None = None,
        quick_rows: int = 0,
        clock: Clock | None = None,
        observe: Callable[[Batch], None] = lambda _: None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._compute, self._observe = compute, observe
        self._threads, self._member = threads, threads.join(share, long)
        self._short_rows, self._quick_rows = short_rows, quick_rows
        self._clock: Clock = clock or loop
        self._queue = RowQueue(limits)
        self.room = Room(self._queue, self._clock, self._retry_after)  # while a request's body is decoded
        self._changed = asyncio.Event()
        self._open: set[_Request[R]] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._rows_per_second = 0.0
        self._closed = False
        self._failure: BaseException | None = None
        # In a context of its own: what it logs is about no request, also where one has loaded the model.
        self._loop = loop.create_task(self._form_batches(), context=contextvars.Context())
        self._loop.add_done_callback(self._supervise)

    @property
    def alive(self) -> bool:
        """Whether requests are still computed; False for good once the loop has died of a bug."""
        return self._failure is None

    @property
    def queue_rows(self) -> int:
        """Rows that wait."""
        return self._queue.rows

    async def submit(self, inputs: Array, deadline: float = math.inf) -> Answered[R]:
        """The result for `inputs` (B, ...), B >= 1; `deadline` is a moment of the clock.

        Raises `QueueFull`, `DeadlineExceeded`, `Closed`, `BatcherFailed`, or what `compute` raised for these inputs
        alone. Cancelling the call takes its rows out of the queue; where the service was slow, it raises
        `CancelledWhileSlow`.
        """
        request = self._admit(inputs, deadline)
        try:
            return await request.future
        except asyncio.CancelledError:
            self._drop(request)
            now = self._clock.time()
            if now - request.admitted > SLOW_SECONDS and self._could_keep(request, now):
                raise CancelledWhileSlow from None
            raise
        finally:
            self._open.discard(request)
            if request.timer is not None:
                request.timer.cancel()
            del request  # holds the error that holds this frame: both would wait for a collection of garbage

    async def close(self) -> None:
        """Refuse new requests, compute what was admitted, and end."""
        self._closed = True
        while self._open and self._failure is None:
            await asyncio.wait([request.future for request in self._open])
            await asyncio.sleep(0)  # let the callers that awaited them run
        self._loop.cancel()
        await asyncio.gather(self._loop, *self._running, return_exceptions=True)
        self._threads.leave(self._member)
        # The model, whose methods they are, holds the batcher: it would not be freed before garbage is collected, many
        # models later perhaps.
        self._compute = self._observe = _refuse

    def _admit(self, inputs: Array, deadline: float) -> _Request[R]:
        if self._failure is not None:
            raise BatcherFailed("the loop that forms batches has died") from self._failure
        if self._closed:
            _refuse()
        future = asyncio.get_running_loop().create_future()
        request: _Request[R] = _Request(len(inputs), deadline=deadline, inputs=inputs, future=future)
        self._queue.admit(request, self._clock.time(), self._retry_after())
        self._open.add(request)
        if deadline < math.inf:
            request.timer = self._clock.call_at(deadline, functools.partial(self._expire, request))
        self._changed.set()
        return request

    def _retry_after(self) -> float:
        """Whole seconds to compute what waits now."""
        return max(1.0, self._wait())

    def _wait(self) -> float:
        """Seconds to compute what waits now, at the rate of the last batches and with as many batches at once."""
        rate = self._rows_per_second * max(1, self._threads.count // self._member.share)
        return (self._queue.rows + self._queue.promised) / rate if rate else 0.0

    def _expire(self, request: _Request[R]) -> None:
        """Fail the request at its deadline. A computation cannot be stopped and may never end: do not wait."""
        slow = self._is_slow() and self._could_keep(request, request.deadline)
        self._drop(request)
        doing = "was computed" if request.taken else "waited"
        _fail(request, DeadlineExceeded(f"the deadline passed while the request {doing}", slow=slow))

    def _drop(self, request: _Request[R]) -> None:
        self._queue.discard(request)
        self.room.advance()

    def _is_slow(self) -> bool:
        """Whether what waits takes longer than it should, or a batch is computed for longer."""
        return max(self._wait(), self._threads.oldest_seconds) > SLOW_SECONDS

    def _could_keep(self, request: Item, moment: float) -> bool:
        """Whether an idle machine would have computed the request by then."""
        own = request.rows / self._rows_per_second if self._rows_per_second else 0.0
        return request.admitted + own <= moment

    async def _form_batches(self) -> None:
        while True:
            await self._until_ready()
            if await self._are_few():
                self._compute_here()
                continue
            held = await self._threads.acquire(self._member)
            started = False
            try:
                started = self._dispatch(held)
            finally:
                if not started:
                    self._threads.release(self._member, held)

    async def _until_ready(self) -> None:
        while not len(self._queue):
            self._changed.clear()
            await self._changed.wait()

    async def _are_few(self) -> bool:
        """Whether so few rows wait that they are computed here, once the loop has admitted what it has read together:
        that is one batch then."""
        if self._queue.rows > self._quick_rows:
            return False
        await asyncio.sleep(0)
        return 0 < self._queue.rows <= self._quick_rows

    def _compute_here(self) -> None:
        now, started = self._clock.time(), time.perf_counter()
        batch = self._take(now, alone=True)
        if batch.pieces:
            results = compute_merged(self._compute, _inputs(batch))
            self._answer(batch, results, now, time.perf_counter() - started)

    def _take(self, now: float, *, alone: bool = False) -> NextBatch:
        """The next batch; requests whose deadlines have passed fail."""
        most = self._short_rows if self._threads.shared else None
        slow, batch = self._is_slow(), self._queue.take(now, alone=alone, most=most)
        self.room.advance()
        for item in batch.expired:
            assert isinstance(item, _Request)
            missed = DeadlineExceeded(
                "the deadline passed while the request waited", slow=slow and self._could_keep(item, item.deadline)
            )
            _fail(item, missed)
        return batch

    def _dispatch(self, held: int) -> bool:
        """Start the next batch on the acquired threads; False where no request waits any more."""
        now = self._clock.time()
        batch = self._take(now)
        if not batch.pieces:
            return False
        task = asyncio.get_running_loop().create_task(self._run(batch, now, held))
        self._running.add(task)
        task.add_done_callback(self._supervise)
        return True

    async def _run(self, batch: NextBatch, now: float, held: int) -> None:
        try:
            merged = functools.partial(compute_merged, self._compute, _inputs(batch))
            results = await self._threads.run(merged)
        finally:
            self._threads.release(self._member, held)
        self._answer(batch, results, now, self._clock.time() - now)

    def _answer(self, batch: NextBatch, results: Sequence[R | Exception], now: float, seconds: float) -> None:
        """Give each request its result; the batch was taken `now`, and computed for so many seconds."""
        for piece, result in zip(batch.pieces, results, strict=True):
            request = _request(piece)
            request.computed(now, now + seconds)
            self._deliver(piece, request, result)
        self._note(Batch(batch.rows, len(batch.pieces), seconds))

    def _deliver(self, piece: Piece, request: _Request[R], result: R | Exception) -> None:
        if request.future.done():  # the client has left, or another piece has failed
            return
        if isinstance(result, Exception):
            self._drop(request)
            _fail(request, result.after(piece.start) if isinstance(result, RowError) else result)
            return
        request.parts[piece.start] = result
        request.done_rows += piece.rows
        if request.done_rows == request.rows:
            queued = request.first_taken - request.admitted
            request.future.set_result(Answered(join(request.parts), queued, request.compute_seconds))

    def _note(self, batch: Batch) -> None:
        rate = batch.rows / max(batch.compute_seconds, 1e-6)
        known = self._rows_per_second or rate
        self._rows_per_second = RATE_MEMORY * known + (1 - RATE_MEMORY) * rate
        self._observe(batch)

    def _supervise(self, task: "asyncio.Task[None]") -> None:
        """A task of the batcher has ended. An exception is a bug: fail every waiting request instead of hanging."""
        self._running.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("the batcher failed; every waiting request fails with it", exc_info=error)
        self._failure = error
        self._loop.cancel()
        for _ in self._queue.drain():
            pass
        for request in self._open:
            _fail(request, BatcherFailed("the loop that forms batches has died"))
        self.room.advance()


def _refuse(*_: object) -> Any:
    raise Closed("no more requests are taken")


def _inputs(batch: NextBatch) -> list[Array]:
    return [_request(piece).inputs[piece.start : piece.stop] for piece in batch.pieces]


def _request(piece: Piece) -> _Request[Any]:
    assert isinstance(piece.item, _Request)
    return piece.item


def _fail(request: _Request[Any], error: Exception) -> None:
    if not request.future.done():
        request.future.set_exception(error)
