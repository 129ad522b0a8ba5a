"""Processes as Linux reports them in /proc, and waiting for what they do."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TIMEOUT = 60


def children_of(pid: int) -> set[int]:
    """The running child processes of `pid`."""
    found = set[int]()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found |= set(map(int, path.read_text().split()))
    return found


def is_running(pid: int) -> bool:
    """Whether the process `pid` exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def usual_signals() -> Iterator[None]:
    """Processes that are started inside get SIGINT and SIGHUP, also where the tests run in the background or under
    `nohup`, which have them ignored."""
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGHUP, hang_up)


def wait_until(condition: Callable[[], bool]) -> None:
    """Check until `condition` holds; fails after `TIMEOUT` seconds."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.002)  # for what waits for a processor: two are shared by all workers and what they start


def written_lines(file: Path) -> list[str]:
    """The lines of a file that is being written: of a line that is half there, a later call has the whole."""
    return file.read_text().rpartition("\n")[0].splitlines()


def cpu_ticks(pid: int) -> int:
    """The processor time that the process has spent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
