"""End the process whatever hangs: a thread that computes or loads cannot be stopped, and may never return."""

import contextlib
import faulthandler
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable

# How long writing the last lines of the log may take: their reader may have stopped reading.
FLUSH_SECONDS = 1.0
log = logging.getLogger("demur")


def exit_now(status: int) -> None:
    """Flush the output, and end the process without waiting for anything that runs in it."""
    _within(FLUSH_SECONDS, _flush)
    os._exit(status)


class ForcedExit:
    """Ends the process where it has not ended by itself in time.

    `status`: the exit status then; `leave`: ends the process. Its thread starts here, so that `schedule` may be called
    from a signal handler.
    """

    def __init__(self, status: int = 0, leave: Callable[[int], None] = exit_now) -> None:
        self.status, self._leave = status, leave
        self._moments: queue.SimpleQueue[float] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="forced-exit", daemon=True).start()

    def schedule(self, seconds: float) -> None:
        """Force the exit in `seconds` from now; the last call holds."""
        self._moments.put(time.monotonic() + seconds)

    def _watch(self) -> None:
        moment: float | None = None
        while True:
            try:
                moment = self._moments.get(timeout=None if moment is None else max(0.0, moment - time.monotonic()))
            except queue.Empty:
                break
        # Where other code holds the GIL, no Python thread can end the process.
        with contextlib.suppress(Exception):
            faulthandler.dump_traceback_later(2 * FLUSH_SECONDS + 1, exit=True)
        _within(FLUSH_SECONDS, lambda: log.error("What runs did not end in time and is left behind"))
        self._leave(self.status)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _within(seconds: float, function: Callable[[], None]) -> None:
    """Call `function` in a thread, and wait for it no longer than `seconds`."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(seconds)
