"""The environment of a process that runs a module of this package."""

import os
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def child_environment() -> dict[str, str]:
    """This process's environment, with one thread for each library; the package is found where it is here, whatever the
    current folder holds."""
    root = str(Path(__file__).absolute().parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path}
