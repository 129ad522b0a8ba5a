"""Asking a running service for its health, again and again, from a process of its own while a test does its worst."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

# In a process of its own, since a test that floods a service holds Python's lock as well.
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
    """`worst`: after the block, the longest that an answer took, in seconds."""

    worst = 0.0


@contextlib.contextmanager
def asked_for_health(port: int) -> Iterator[Health]:
    """Until the end of the block; it begins when the first answer has come."""
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
