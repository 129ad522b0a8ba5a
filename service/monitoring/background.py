"""A thread for what no request should wait for, such as writing to the disk: one piece of work after the other."""

import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Counter

QUEUED, QUEUED_NUMBERS = 1000, 2_000_000  # pieces of work that wait, and the numbers that they hold
END_SECONDS = 5.0
log = logging.getLogger("probity")


@dataclass(frozen=True)
class Work:
    """What to run, how many examples it is for, and about how many numbers it holds in memory while it waits."""

    run: Callable[[], None]
    count: int
    numbers: int = 0


class BackgroundThread:
    """Runs work from `start` to `close`. Examples whose work fails, or for which the queue has no room, are counted by
    `lost`, and the first ones are logged; `what` they are."""

    def __init__(self, name: str, what: str, lost: Counter) -> None:
        self._what, self._lost = what, lost
        self._queue: queue.Queue[Work | None] = queue.Queue(QUEUED)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock, self._numbers, self._losing = threading.Lock(), 0, False

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def note(self, work: Work) -> bool:
        """Run it soon; returns at once, whether the queue has room. An empty queue takes work of any size."""
        with self._lock:
            if not (self._numbers and work.numbers) or self._numbers + work.numbers <= QUEUED_NUMBERS:
                with contextlib.suppress(queue.Full):
                    self._queue.put_nowait(work)
                    self._numbers += work.numbers
                    return True
        self._lose(work, "more comes than the disk takes")
        return False

    def settle(self, seconds: float) -> None:
        """Wait until everything noted so far has been done, for so long at most; never call it in an event loop."""
        done = threading.Event()
        if self.note(Work(done.set, 0)):
            done.wait(seconds)

    def close(self) -> bool:
        """Do what waits, for a few seconds at most; whether everything has been done."""
        try:
            self._queue.put(None, timeout=END_SECONDS)
        except queue.Full:
            return False
        self._thread.join(END_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            with self._lock:
                self._numbers -= work.numbers
            try:
                work.run()
            except OSError as error:
                self._lose(work, str(error.strerror))
            except sqlite3.Error as error:
                self._lose(work, str(error))
            except Exception:  # whatever it is, the work after it is still wanted
                self._lose(work, "they could not be made")
                log.exception("An error in the thread %s", self._thread.name)
            else:
                self._losing = self._losing and not work.count

    def _lose(self, work: Work, reason: str) -> None:
        self._lost.inc(work.count)
        if work.count and not self._losing:
            log.error("%s are lost: %s", self._what, reason)
            self._losing = True
