"""The threads that compute, shared by all models, which take turns."""

import asyncio
import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Settle = Callable[[Any, BaseException | None], None]
Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, Settle]


@dataclass(eq=False)
class Member:
    """A model that computes here. share: how many threads one of its batches uses; long: whether it keeps others
    waiting; turn: the number of the turn that it had last."""

    share: int
    long: bool
    turn: int = 0


@dataclass(frozen=True)
class _Place:
    """Who waits: granted is set to the number of threads."""

    member: Member
    granted: asyncio.Future[int]


class ComputeThreads:
    """`count` compute threads. A batcher acquires as many as its network uses before it forms a batch, so that the
    batch grows while they are busy. `free` counts those that no batch holds.

    The model whose last turn is longest ago comes next: one that has always something to compute does not keep one that
    seldom has waiting for more than what is computed already, and none starves, not even one that needs more threads at
    once. Where networks that compute long serve beside others, all of the long ones together leave one thread to the
    others: a prediction of a millisecond need not wait for those of a tenth of a second. `clock` gives monotonic
    seconds.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = self.free = count
        self._clock = clock
        self._started: dict[asyncio.Future[Any], float] = {}  # start times, the oldest first
        self._waiting: list[_Place] = []
        self._members: set[Member] = set()
        self._turns = self._held_long = 0
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        for number in range(count):
            threading.Thread(target=_work, args=(self._jobs,), name=f"compute_{number}", daemon=True).start()

    @property
    def oldest_seconds(self) -> float:
        """Age of the oldest running computation in seconds; 0 without one."""
        return self._clock() - next(iter(self._started.values())) if self._started else 0.0

    def join(self, share: int = 1, long: bool = False) -> Member:
        """A model computes here from now on, until it leaves."""
        member = Member(share, long)
        self._members.add(member)
        return member

    def leave(self, member: Member) -> None:
        """It computes no more."""
        self._members.discard(member)
        self._grant()

    @property
    def shared(self) -> bool:
        """Whether several models have joined."""
        return len(self._members) > 1

    @property
    def _most_long(self) -> int:
        """How many threads those that compute long may hold together."""
        beside_others = len({member.long for member in self._members}) > 1 and self.count > 1
        return self.count - 1 if beside_others else self.count

    async def acquire(self, member: Member) -> int:
        """Wait until its share of them (at most all that there are for its kind) is free, and return how many were
        granted; `release` as many whatever happens."""
        place = _Place(member, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._grant()
        try:
            return await place.granted
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
                self._grant()
            elif not place.granted.cancelled():  # granted already, but the caller is gone
                self.release(member, place.granted.result())
            raise

    def release(self, member: Member, held: int) -> None:
        """Give so many threads back."""
        self.free += held
        self._held_long -= held if member.long else 0
        self._grant()

    async def run(self, function: Callable[[], T]) -> T:
        """Call `function` in a thread; acquire a share first.

        Like `run_in_executor`, but without its second, chained future: many computations here are as short as that
        takes.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._started[future] = self._clock()
        self._jobs.put((function, loop, functools.partial(self._settle, future)))
        return await future

    def shutdown(self) -> None:
        """End the threads without waiting for what still runs in them."""
        for _ in range(self.count):
            self._jobs.put(None)

    def _settle(self, future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
        del self._started[future]
        if future.done():  # the caller is gone
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def _grant(self) -> None:
        """To whoever's turn it is, while there are enough."""
        while self._waiting:
            able = [place for place in self._waiting if self._is_able(place.member)]
            place = min(able, key=lambda place: place.member.turn, default=None)
            if place is None or (share := self._share(place.member)) > self.free:
                return
            self._waiting.remove(place)
            if not place.granted.done():
                self.free -= share
                self._held_long += share if place.member.long else 0
                self._turns += 1
                place.member.turn = self._turns
                place.granted.set_result(share)

    def _is_able(self, member: Member) -> bool:
        """Others pass those that compute long while these hold all that they may."""
        return not member.long or self._held_long + self._share(member) <= self._most_long

    def _share(self, member: Member) -> int:
        return min(member.share, self._most_long if member.long else self.count)


def _work(jobs: "queue.SimpleQueue[Job | None]") -> None:
    while (job := jobs.get()) is not None:
        function, loop, settle = job
        value, problem = None, None
        try:
            value = function()
        except BaseException as error:
            problem = error
        with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
            loop.call_soon_threadsafe(settle, value, problem)
        del job, function, settle, value, problem  # while the thread waits for the next job it holds no model
