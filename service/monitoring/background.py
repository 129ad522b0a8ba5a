"""A thread for what no request should wait for, such as writing to the disk: in order, and several pieces at once."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client import Counter

QUEUED, QUEUED_NUMBERS = 1000, 2_000_000  # pieces of work that wait, and the numbers that they hold
BATCH, BATCH_NUMBERS = 100, 200_000  # what is written at once, but for a single piece with more numbers
# How long the first piece of a batch waits for others. Waking the thread for every request would take several times
# the processor time of the work itself; a process that is killed loses what it has not written.
GATHER_SECONDS = 0.05
END_SECONDS = 5.0
T = TypeVar("T")
log = logging.getLogger("demur")


@dataclass(frozen=True)
class Work(Generic[T]):
    """What makes the thing to write, how many examples it is for, and about how many numbers it holds in memory while
    it waits. always: there is room for it, however much waits."""

    make: Callable[[], T]
    count: int
    numbers: int = 0
    always: bool = False


class BackgroundThread(Generic[T]):
    """Makes things and gives them to `write`, several at once, from `start` to `close`.

    Examples whose things cannot be made or written, or for which the queue has no room, are counted by `lost`, and the
    first ones are logged; `what` they are. gather: how long a thing may wait for others, in seconds. full:
    why the queue is, where it is.
    """

    def __init__(
        self,
        name: str,
        what: str,
        lost: Counter,
        write: Callable[[Sequence[T]], None],
        gather: float = GATHER_SECONDS,
        full: str = "more comes than the disk takes",
    ) -> None:
        self._what, self._lost, self._write, self._gather_seconds = what, lost, write, gather
        self._full = full
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()
        self._to_do = threading.Condition(self._lock)
        self._waiting, self._numbers = deque[Work[T]](), 0
        self._closing, self._losing = False, False

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def note(self, work: Work[T]) -> bool:
        """Write it soon; returns at once, whether the queue has room. An empty queue takes work of any size."""
        with self._lock:
            fits = not (self._numbers and work.numbers) or self._numbers + work.numbers <= QUEUED_NUMBERS
            if work.always or (fits and len(self._waiting) < QUEUED):
                self._waiting.append(work)
                self._numbers += work.numbers
                if len(self._waiting) == 1 or self._is_urgent():
                    self._to_do.notify()
                return True
        self._lose(work.count, self._full)
        return False

    def close(self) -> bool:
        """Write at once what waits, for a few seconds at most; whether everything has been done."""
        with self._lock:
            self._closing = True
            self._to_do.notify()
        self._thread.join(END_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while batch := self._gather():
            self._write_all(batch)
            del batch  # while the thread waits for the next one it holds nothing of requests

    def _gather(self) -> list[Work[T]]:
        """The next pieces, in order; none at the end."""
        with self._lock:
            self._to_do.wait_for(lambda: self._waiting or self._closing)
            self._to_do.wait_for(self._is_urgent, self._gather_seconds)
            batch, numbers = list[Work[T]](), 0
            while self._waiting and len(batch) < BATCH:
                numbers += self._waiting[0].numbers
                if batch and numbers > BATCH_NUMBERS:
                    break
                batch.append(self._waiting.popleft())
                self._numbers -= batch[-1].numbers
            return batch

    def _is_urgent(self) -> bool:
        """Whether to wait for no more pieces."""
        return len(self._waiting) >= BATCH or self._numbers >= BATCH_NUMBERS or self._closing

    def _write_all(self, batch: list[Work[T]]) -> None:
        things, count = list[T](), 0
        for work in batch:
            with self._guarded(work.count):  # a piece that cannot be made costs no other
                things.append(work.make())
                count += work.count
        if things:
            with self._guarded(count):
                self._write(things)
                self._losing = False

    @contextlib.contextmanager
    def _guarded(self, count: int) -> Iterator[None]:
        """So many examples are lost where the block fails."""
        try:
            yield
        except OSError as error:
            self._lose(count, str(error.strerror))
        except Exception:  # whatever it is, the work after it is still wanted
            self._lose(count, "they could not be made")
            log.exception("An error in the thread %s", self._thread.name)

    def _lose(self, count: int, reason: str) -> None:
        self._lost.inc(count)
        if not self._losing:
            log.error("%s are lost: %s", self._what, reason)
            self._losing = True
