"""The audit trail: one line for each prediction, written by a thread, so that no request waits for the disk."""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Counter

from service.monitoring.audit_file import RotatedFile

QUEUED = 1000  # requests whose lines wait to be written
END_SECONDS = 5.0
log = logging.getLogger("probity")


@dataclass(frozen=True)
class Lines:
    """What makes the lines, called in the trail's thread, and how many there are."""

    make: Callable[[], bytes]
    count: int


class AuditTrail:
    """Writes to `file` from `start` to `close`. Lines that cannot be written, or for which the queue has no room, are
    counted by `lost`, and the first ones are logged."""

    def __init__(self, file: RotatedFile, lost: Counter) -> None:
        self._file, self._lost = file, lost
        self._queue: queue.Queue[Lines | None] = queue.Queue(QUEUED)
        self._thread = threading.Thread(target=self._write, name="probity-audit", daemon=True)
        self._losing = False

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def note(self, lines: Lines) -> None:
        """Write the lines soon; returns at once."""
        try:
            self._queue.put_nowait(lines)
        except queue.Full:
            self._lose(lines, "more comes than the disk takes")

    def close(self) -> None:
        """Write what waits, for a few seconds at most, and release the file."""
        try:
            self._queue.put(None, timeout=END_SECONDS)
        except queue.Full:
            return
        self._thread.join(END_SECONDS)

    def _write(self) -> None:
        while (lines := self._queue.get()) is not None:
            try:
                self._file.append(lines.make())
            except OSError as error:
                self._lose(lines, str(error.strerror))
            except Exception:  # whatever it is, the lines after these are still wanted
                self._lose(lines, "they could not be made")
                log.exception("An error in the audit trail")
            else:
                self._losing = False
        self._file.close()

    def _lose(self, lines: Lines, reason: str) -> None:
        self._lost.inc(lines.count)
        if not self._losing:
            log.error("Lines of the audit trail are lost: %s", reason)
        self._losing = True
