"""For every test: one thread a worker process, since the workers share the cores, and a home folder of the run."""

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest

pytest_plugins = ["tests.support.tree_guard", "tests.support.operator_signatures"]

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")

HOME_PREFIX = "home-of-the-tests-"


def _own_home() -> None:
    """Libraries keep fonts and caches in the home folder. Worker processes inherit that of the first process."""
    if not Path(os.environ.get("HOME", "")).name.startswith(HOME_PREFIX):
        os.environ["HOME"] = tempfile.mkdtemp(prefix=HOME_PREFIX)
        for place in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR"):
            os.environ.pop(place, None)


_own_home()


def pytest_unconfigure(config: pytest.Config) -> None:
    home = Path(os.environ["HOME"])
    if not hasattr(config, "workerinput") and home.name.startswith(HOME_PREFIX):
        shutil.rmtree(home, ignore_errors=True)
