"""Count the CPUs that this process may use: the container's share, not the host's."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def available_cpus(cgroup: Path = CGROUP) -> int:
    """The smaller of the scheduler's affinity and the cgroup's CPU quota (v2, then v1), at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota_v2(cgroup) or _quota_v1(cgroup)
    return max(1, min(affinity, math.ceil(quota)) if quota else affinity)


def _quota_v2(cgroup: Path) -> float | None:
    """`cpu.max` holds "QUOTA PERIOD" in microseconds, or "max PERIOD"."""
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _quota_v1(cgroup: Path) -> float | None:
    quota = _read(cgroup / "cpu" / "cpu.cfs_quota_us")
    period = _read(cgroup / "cpu" / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
