"""The files in which worker processes share their metrics, safe on a full disk.

prometheus-client maps them into memory and extends them without reserving disk space. The first write to a page that
the disk has no room for ends the process with SIGBUS.
"""

import logging
import mmap
import os
from pathlib import Path
from typing import Any

from prometheus_client import values
from prometheus_client.mmap_dict import MmapedDict

FIRST_BYTES = 2**16
EMPTY_BYTES = 8  # used by a file without entries
# An entry's length, value, timestamp and padding, beside its name.
ENTRY_BYTES = 32
log = logging.getLogger("probity")


class ReservedDict(MmapedDict):
    """prometheus-client's file of values, which reserves disk space before using it.

    Without space it continues in memory: the process lives, but the others no longer see what it counts.
    """

    def __init__(self, filename: str, read_mode: bool = False) -> None:
        try:
            if not read_mode:
                _reserve_first(filename)
        except OSError as error:
            log.error("%s: this process's metrics are not shared, make room and restart it", error)
            self._f, self._fname, self._m, self._positions = None, filename, mmap.mmap(-1, FIRST_BYTES), {}  # type: ignore[assignment]
            self._capacity, self._used = FIRST_BYTES, EMPTY_BYTES
        else:
            super().__init__(filename, read_mode)  # type: ignore[no-untyped-call]

    def _init_value(self, key: str) -> None:
        capacity = self._capacity
        while capacity < self._used + len(key.encode()) + ENTRY_BYTES:
            capacity *= 2
        if capacity > self._capacity:
            self._grow(capacity)
        super()._init_value(key)  # type: ignore[no-untyped-call]

    def _grow(self, capacity: int) -> None:
        larger = None
        if self._f is not None:
            try:
                os.posix_fallocate(self._f.fileno(), 0, capacity)
                larger = mmap.mmap(self._f.fileno(), capacity)
            except OSError as error:  # the file stays, with everything counted so far
                log.error("%s: %s: new metrics are not shared, make room and restart it", self._fname, error)
                self._f.close()
                self._f = None  # type: ignore[assignment]
        if larger is None:
            larger = mmap.mmap(-1, capacity)
            larger[: self._capacity] = self._m[:]
        self._m, self._capacity = larger, capacity


def reserve_room_for_metrics() -> None:
    """Make prometheus-client use `ReservedDict` in this process; call it before the first metric is created."""
    if hasattr(os, "posix_fallocate"):
        shared: Any = values
        shared.MmapedDict = ReservedDict


def _reserve_first(filename: str) -> None:
    handle = os.open(filename, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if os.fstat(handle).st_size == 0:
            os.posix_fallocate(handle, 0, FIRST_BYTES)
    except OSError:
        Path(filename).unlink()  # readers of the folder expect no empty file
        raise
    finally:
        os.close(handle)
