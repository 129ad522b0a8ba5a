"""Find how much memory this process takes, and may still use: the container's share, not the host's."""

import os
import re
from pathlib import Path

CGROUP, MEMINFO = Path("/sys/fs/cgroup"), Path("/proc/meminfo")


def available_bytes(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int | None:
    """The smaller of the host's available memory and the cgroup's (v2, then v1); None where neither is known."""
    v1 = cgroup / "memory"
    left = [
        _host(meminfo),
        _left(cgroup / "memory.max", cgroup / "memory.current", cgroup / "memory.stat"),
        _left(v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes", v1 / "memory.stat"),
    ]
    return min((each for each in left if each is not None), default=None)


def _host(meminfo: Path) -> int | None:
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _read(meminfo), re.MULTILINE)
    return 1024 * int(found[1]) if found else None


def _left(limit: Path, used: Path, statistics: Path) -> int | None:
    """The cgroup's limit less its use. The cache of files counts as used, but is freed when needed: add it back."""
    most, now = _read(limit), _read(used)
    if not (most.isdecimal() and now.isdecimal()):
        return None
    cached = dict(re.findall(r"^(?:total_)?((?:in)?active_file) (\d+)$", _read(statistics), re.MULTILINE))
    return max(0, int(most) - int(now) + sum(map(int, cached.values())))


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def resident_bytes(statistics: Path = Path("/proc/self/statm")) -> int | None:
    """What this process takes of the memory; None where the system does not tell."""
    try:
        return int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
