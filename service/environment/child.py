"""A process that runs a module of this package, and ends with the one that has started it."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


PR_SET_PDEATHSIG = 1


def start_child(module: str) -> "subprocess.Popen[bytes]":
    """Run the module, with pipes for its standard input and output."""
    return subprocess.Popen(  # noqa: S603  this interpreter
        (sys.executable, "-P", "-m", module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
        start_new_session=True,  # a signal to all of a terminal's processes is for the service to handle
    )


def end_with_parent() -> None:
    """Have Linux kill this process when its parent dies, however that dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """This process's environment, with one thread for each library; the package is found where it is here, whatever the
    current folder holds."""
    root = str(Path(__file__).absolute().parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path}
