"""Processes that the service starts stand out of a terminal's signals, but not out of its share of the processors."""

import os

from demur.service.environment.child import start_child


def test_a_child_shares_the_session_but_not_the_process_group() -> None:
    """Linux may share the processors among sessions."""
    child = start_child("demur.service.recording.shadow_process")
    try:
        assert os.getsid(child.pid) == os.getsid(0)
        assert os.getpgid(child.pid) == child.pid
    finally:
        child.kill()
        child.communicate()
