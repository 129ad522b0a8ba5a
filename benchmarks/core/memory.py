"""Peak memory of this process: how far its resident set grew above a baseline."""

import ctypes
import gc
import resource
import sys
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # of proc(5): sets the peak of the resident set to its present size


def settle() -> None:
    """Return freed memory to the system, so that later use shows as growth."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)


def reset_peak() -> None:
    """Start a new peak where the system can; elsewhere the peak counts from the start of the process."""
    settle()
    if CLEAR.exists():
        CLEAR.write_text(RESET_PEAK)


def resident_bytes() -> int:
    """The resident set now."""
    return _status("VmRSS") if STATUS.exists() else peak_bytes()


def peak_bytes() -> int:
    """The largest resident set since `reset_peak`."""
    if STATUS.exists():
        return _status("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
