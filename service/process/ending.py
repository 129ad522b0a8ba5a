"""The end of the process, whatever hangs: a thread that computes or loads cannot be stopped, and may never end."""

import contextlib
import faulthandler
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable

# How long it may take to write the last lines of the log: who reads it may have stopped to read.
SAYING_SECONDS = 1.0
log = logging.getLogger("probity")


def end_now(status: int) -> None:
    """End the process without waiting for anything that runs in it, once what was written is on its way."""
    _within(SAYING_SECONDS, _flush)
    os._exit(status)


class Ending:
    """Ends the process by force where it has not ended by itself in time.

    `status`: the exit status then; `leave`: what ends the process. The thread that does it is there from the beginning,
    so that `expect` may be called from a signal's handler.
    """

    def __init__(self, status: int = 0, leave: Callable[[int], None] = end_now) -> None:
        self.status, self._leave = status, leave
        self._moments: queue.SimpleQueue[float] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="ending", daemon=True).start()

    def expect(self, seconds: float) -> None:
        """From now on it should take no longer than this; the last call holds."""
        self._moments.put(time.monotonic() + seconds)

    def _watch(self) -> None:
        moment: float | None = None
        while True:
            try:
                moment = self._moments.get(timeout=None if moment is None else max(0.0, moment - time.monotonic()))
            except queue.Empty:
                break
        # Where something keeps Python's own lock, no thread of Python's can end the process.
        with contextlib.suppress(Exception):
            faulthandler.dump_traceback_later(2 * SAYING_SECONDS + 1, exit=True)
        _within(SAYING_SECONDS, lambda: log.error("What runs did not end in time and is left behind"))
        self._leave(self.status)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _within(seconds: float, function: Callable[[], None]) -> None:
    """Call it in a thread, and wait for it no longer than this."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(seconds)
