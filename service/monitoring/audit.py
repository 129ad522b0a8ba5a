"""The audit trail: one line for each prediction, written by a thread, so that no request waits for the disk."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from prometheus_client import Counter
from pydantic_core import to_json

from .audit_file import RotatedFile, StandardOutput
from .background import BackgroundThread, Work


@dataclass(frozen=True)
class Lines:
    """What makes the lines, called in the trail's thread, how many there are, and how many numbers they are made of."""

    make: Callable[[], bytes]
    count: int
    numbers: int = 0


class AuditTrail:
    """Writes to `file` from `start` to `close`. Lines that cannot be written, or for which the queue has no room, are
    counted by `lost`, and the first ones are logged."""

    def __init__(self, file: RotatedFile | StandardOutput, lost: Counter) -> None:
        self._file = file
        self._thread = BackgroundThread("demur-audit", "Lines of the audit trail", lost, self._write)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def note(self, lines: Lines) -> None:
        """Write the lines soon; returns at once."""
        self._thread.note(Work(lines.make, lines.count, lines.numbers))

    def event(self, event: str, **fields: Any) -> None:
        """Write a line about the service itself soon: when, in which process, what happened, and the fields."""
        self.note(Lines(partial(event_line, event, time.time(), os.getpid(), fields), 1))

    def close(self) -> None:
        """Write what waits, for a few seconds at most, and release the file."""
        if self._thread.close():
            self._file.close()

    def _write(self, several: Sequence[bytes]) -> None:
        self._file.append(b"".join(several))


def moment(seconds: float) -> str:
    """Seconds since 1970 as the lines have them: UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def event_line(event: str, seconds: float, process: int, fields: dict[str, Any]) -> bytes:
    """The line of an event, with its end."""
    return to_json({"time": moment(seconds), "event": event, "process": process, **fields}) + b"\n"
