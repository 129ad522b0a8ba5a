"""Processes that the service starts stand behind it, and out of a terminal's signals."""

import os
import sys

import pytest

from probity.service.environment.child import start_child
from tests.support.processes import wait_until


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no SCHED_IDLE")
def test_a_child_shares_the_session_but_not_the_process_group_and_runs_when_nothing_else_does() -> None:
    child = start_child("probity.service.models.shadow_process")
    try:
        assert os.getsid(child.pid) == os.getsid(0)  # which Linux's scheduler shares the processors among
        assert os.getpgid(child.pid) == child.pid
        wait_until(lambda: os.sched_getscheduler(child.pid) == os.SCHED_IDLE)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == 19
    finally:
        child.kill()
        child.communicate()
