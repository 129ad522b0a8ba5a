"""The audit trail: one line for each prediction, written by a thread, so that no request waits for the disk.

Which bundle and which settings gave an answer, the lines of the events before it say. So that this holds for every file
alone, whoever began it anew, each process repeats there what lasts of its events, before anything else that it writes.
"""

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

LASTING = {"started", "loaded", "pinned"}  # until the next one, of the same place


@dataclass(frozen=True)
class Event:
    """What happened to the service itself, and where: the line of it, and that with which a later file repeats it."""

    kind: str
    place: str
    line: bytes
    repeated: bytes


class AuditTrail:
    """Writes to `file` from `start` to `close`. Lines that cannot be written, or for which the queue has no room, are
    counted by `lost`, and the first ones are logged."""

    def __init__(self, file: RotatedFile | StandardOutput, lost: Counter) -> None:
        self._file, self._lasting = file, dict[tuple[str, str], bytes]()
        self._thread = BackgroundThread[bytes | Event]("demur-audit", "Lines of the audit trail", lost, self._write)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def note(self, make: Callable[[], bytes], count: int, numbers: int = 0) -> None:
        """Write the lines soon that `make` returns, called in the trail's thread; returns at once. count: how many
        there are; numbers: how many they are made of."""
        self._thread.note(Work(make, count, numbers))

    def event(self, event: str, **fields: Any) -> None:
        """Write a line about the service itself soon: when, in which process, what happened, and the fields."""
        self._thread.note(Work(partial(_event, event, time.time(), os.getpid(), fields), 1, always=True))

    def close(self) -> None:
        """Write what waits, for a few seconds at most, and release the file."""
        if self._thread.close():
            self._file.close()

    def _write(self, several: Sequence[bytes | Event]) -> None:
        state, lines = b"".join(self._lasting.values()), list[bytes]()
        for one in several:
            if isinstance(one, Event) and one.kind in LASTING:
                self._lasting[one.kind, one.place] = one.repeated
            elif isinstance(one, Event) and one.kind == "unloaded":
                self._lasting.pop(("loaded", one.place), None)
            lines.append(one.line if isinstance(one, Event) else one)
        self._file.append(b"".join(lines), state)


def moment(seconds: float) -> str:
    """Seconds since 1970 as the lines have them: UTC, with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _event(kind: str, seconds: float, process: int, fields: dict[str, Any]) -> Event:
    line = {"time": moment(seconds), "event": kind, "process": process, **fields}
    written, repeated = (to_json(each) + b"\n" for each in (line, line | {"repeated": True}))
    return Event(kind, fields.get("place", ""), written, repeated)
