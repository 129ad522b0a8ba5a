"""Processes that the service starts stand out of a terminal's signals, but not out of its share of the processors."""

import os
import subprocess
import sys

import pytest

from demur.service.environment.child import PARENT, start_child
from tests.support.server import ROOT


def test_a_child_shares_the_session_but_not_the_process_group() -> None:
    """Linux may share the processors among sessions."""
    child = start_child("demur.service.recording.shadow_process")
    try:
        assert os.getsid(child.pid) == os.getsid(0)
        assert os.getpgid(child.pid) == child.pid
    finally:
        child.kill()
        child.communicate()


CODE = """import resource
from pathlib import Path
from demur.service.environment.child import be_expendable
be_expendable()
print(Path("/proc/self/oom_score_adj").read_text().strip(), *resource.getrlimit(resource.RLIMIT_CORE))"""


@pytest.mark.skipif(sys.platform != "linux", reason="a signal at the parent's death is Linux's")
@pytest.mark.parametrize("died", [False, True])
def test_a_child_is_killed_first_and_one_whose_parent_died_before_ends_by_itself(died: bool) -> None:
    parent = str(os.getpid() + died)
    command = [sys.executable, "-c", CODE]
    found = subprocess.run(command, cwd=ROOT, env={**os.environ, PARENT: parent}, capture_output=True, text=True)
    assert (found.returncode, found.stdout.split()) == ((1, []) if died else (0, ["1000", "0", "0"]))
