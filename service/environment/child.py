"""Processes that run a module of this package, and end with the one that has started them."""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

PR_SET_PDEATHSIG = 1
LOWEST_NICENESS = 19
PARENT = "PARENT_PID"
OOM_SCORE = "1000"


def start_child(module: str, *arguments: str, line: socket.socket | None = None) -> "subprocess.Popen[bytes]":
    """Run the module, with pipes for its standard input and output, or with its end of a socket pair, whose descriptor
    is then its first argument. Call it in a thread that lives as long as the process shall."""
    pipe, silent = subprocess.PIPE, subprocess.DEVNULL
    ends = () if line is None else (line.fileno(),)
    return subprocess.Popen(  # noqa: S603  this interpreter
        (sys.executable, "-P", "-m", module, *map(str, ends), *arguments),
        stdin=silent if ends else pipe,
        stdout=silent if ends else pipe,
        stderr=None if ends else silent,
        pass_fds=ends,
        env=_environment(),
        # A signal to all of a terminal's processes is for the service to handle. A session of its own would keep it out
        # of that too, but Linux gives each session the same share of the processors (sched_autogroup_enabled), whatever
        # the priority of its processes.
        process_group=0,
    )


def be_expendable() -> None:
    """Have Linux kill this process when its parent dies, however that dies, and before the parent where memory is
    short."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if str(os.getppid()) != os.environ[PARENT]:  # it died first
        sys.exit(1)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)


def run_when_idle() -> None:
    """Give this process the lowest priority: on Linux, whatever else is ready to run takes its processor at once.

    Niceness alone would let it finish its slice of some milliseconds (sched(7), SCHED_IDLE).
    """
    os.nice(LOWEST_NICENESS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _environment() -> dict[str, str]:
    """This process's environment, with one thread for each library; the package is found where it is here, whatever the
    current folder holds."""
    root = str(Path(__file__).absolute().parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path, PARENT: str(os.getpid())}
