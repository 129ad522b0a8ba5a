"""Repeated health checks of a running service, from a process of their own, while a test puts load on the service."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

# In a process of its own: a test that floods a service also holds the GIL.
ASK = """
import http.client, select, sys, time
worst = 0.0
while not select.select([sys.stdin], [], [], 0.01)[0]:
    started = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
    connection.request("GET", "/health/live")
    assert connection.getresponse().status == 200
    connection.close()
    worst = max(worst, time.monotonic() - started)
    print(worst, flush=True)
"""


class Health:
    """`worst`: after the block, the longest time that a check took, in seconds."""

    worst = 0.0


@contextlib.contextmanager
def checked_health(port: int) -> Iterator[Health]:
    """Check until the end of the block, which begins after the first check."""
    command = [sys.executable, "-c", ASK, str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    health = Health()
    try:
        first = process.stdout.readline()
        assert first
        yield health
    finally:
        rest, _ = process.communicate("")
    assert process.returncode == 0
    health.worst = float((first + rest).split()[-1])
