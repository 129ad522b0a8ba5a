"""The machine and the versions behind a measurement, for the JSON files."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.core.folders import ROOT
from demur.service.environment.cpu import available_cpus

MEASURED = ("service", "offline", "demur", "benchmarks/*.py", "paper/*.py")  # what a result depends on
LIBRARIES = ("torch", "numpy", "onnxruntime", "onnx", "onnxscript", "laplace-torch", "transformers", "scipy")


def environment(program: str, threads: int) -> dict[str, Any]:
    """Command line (`python -m program ...`, without where results go), commit, processor, cores, threads, memory,
    system, versions and date."""
    return {
        "command": ["python", "-m", program, *_without_out(sys.argv[1:])],
        "git_commit": git_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": available_cpus(),
        "threads": threads,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "os": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: version for name in LIBRARIES if (version := library_version(name))},
    }


def _without_out(arguments: list[str]) -> list[str]:
    """Without `--out` and its folder, which is one of this machine alone."""
    if "--out" not in arguments:
        return arguments
    place = arguments.index("--out")
    return [*arguments[:place], *arguments[place + 2 :]]


def git_commit() -> str:
    """The commit, with "+changes" where files under version control differ from it; "unknown" outside a checkout."""
    try:
        commit = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}+changes" if changed else commit


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def library_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
