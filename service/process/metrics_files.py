"""The files in which worker processes share their metrics, safe on a full disk.

prometheus-client maps them into memory and extends them without reserving disk space. The first write to a page that
the disk has no room for ends the process with SIGBUS.
"""

import logging
import os
import shutil
from pathlib import Path
from typing import Any

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

from ..models.passed_trials import FOLDER

FIRST_BYTES = 2**16  # of a new file, as prometheus-client makes it; it doubles whenever it is full
EMPTY_BYTES = 8  # used by a file without entries
# An entry's length, value, timestamp and padding at most, beside its name.
ENTRY_BYTES = 32
log = logging.getLogger("demur")


class ReservedDict:
    """In place of prometheus-client's file of values: reserves disk space before the file grows into it.

    Series that the disk has no room for are kept in memory: the process lives, but the others do not see them.
    """

    def __init__(self, filename: str) -> None:
        self._name, self._used, self._reserved = filename, EMPTY_BYTES, 0
        self._file: MmapedDict | None = None
        self._known, self._unshared = set[str](), dict[str, tuple[float, float]]()
        try:
            self._reserve(FIRST_BYTES)
        except OSError as error:
            log.error("%s: this process's metrics are not shared, make room and restart it", error)
        else:
            self._file = MmapedDict(filename)  # type: ignore[no-untyped-call]
            for key, _, _ in self._file.read_all_values():  # type: ignore[no-untyped-call]
                self._add(key)

    def read_value(self, key: str) -> tuple[float, float]:
        """The value and its timestamp; a new series begins at 0."""
        if self._file is None or not self._has_room(key):
            return self._unshared.setdefault(key, (0.0, 0.0))
        found: tuple[float, float] = self._file.read_value(key)  # type: ignore[no-untyped-call]
        return found

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Set the value and its timestamp."""
        if self._file is None or not self._has_room(key):
            self._unshared[key] = value, timestamp
        else:
            self._file.write_value(key, value, timestamp)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()  # type: ignore[no-untyped-call]

    def _has_room(self, key: str) -> bool:
        """Whether the series is in the file or can be added to it."""
        if key in self._known:
            return True
        if key in self._unshared:
            return False
        needed = self._used + len(key.encode()) + ENTRY_BYTES
        try:
            while needed > self._reserved:
                self._reserve(2 * self._reserved)
        except OSError as error:  # the file stays, with everything counted so far
            log.error("%s: %s: new metrics are not shared, make room and restart it", self._name, error)
            return False
        self._add(key)
        return True

    def _add(self, key: str) -> None:
        self._known.add(key)
        self._used += len(key.encode()) + ENTRY_BYTES

    def _reserve(self, size: int) -> None:
        """Let the file have at least so many bytes, all of them on the disk; raises `OSError`."""
        handle = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        new = os.fstat(handle).st_size == 0
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError:
            if new:
                Path(self._name).unlink()  # readers of the folder expect no empty file
            raise
        finally:
            os.close(handle)
        self._reserved = size


def share_metrics(slot: int) -> None:
    """Make prometheus-client use `ReservedDict` in this process, in the files of the worker `slot`, whose counts go on:
    files for each process would pile up where workers die. Call it before the first metric is created."""
    shared: Any = values
    if hasattr(os, "posix_fallocate"):
        shared.MmapedDict = ReservedDict
    shared.ValueClass = shared.MultiProcessValue(lambda: slot)


def clear_metrics(folder: Path) -> None:
    """Remove what processes that were killed have left there."""
    for file in folder.glob("*_[0-9]*.db"):
        file.unlink(missing_ok=True)
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
