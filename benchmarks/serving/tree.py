"""Memory and processor time of a process and its descendants, from /proc."""

import os
import threading
import time
from pathlib import Path

PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def members(root: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def session(leader: int) -> list[int]:
    """Every process of the session that this one leads, also those whose parents have ended; zombies are over."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in found if (fields := _stat(pid)) and int(fields[3]) == leader and fields[0] != "Z"]


def resident_bytes(root: int) -> int:
    """Sum of the resident sets: pages that processes share count once for each."""
    return sum(int(fields[21]) for pid in members(root) if (fields := _stat(pid))) * PAGE


def processor_seconds(root: int) -> float:
    """Time that the processors gave to the tree so far, in user space and in the kernel."""
    return sum(int(fields[11]) + int(fields[12]) for pid in members(root) if (fields := _stat(pid))) / TICKS


def _stat(pid: int) -> list[str] | None:
    """After the name, which may hold anything: [0] state, [1] parent, [3] session, [11] and [12] ticks in user space
    and in the kernel, [21] pages."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return None


class Watch:
    """Samples a tree's memory in a thread while the block runs: (moment, resident bytes)."""

    def __init__(self, root: int, every_seconds: float) -> None:
        self.root, self.every_seconds = root, every_seconds
        self.samples: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak_resident(self) -> int:
        return max(size for _, size in self.samples)

    def _watch(self) -> None:
        while True:
            self.samples.append((time.monotonic(), resident_bytes(self.root)))
            if self._stop.wait(self.every_seconds):
                return
