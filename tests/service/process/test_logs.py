"""The log is written aside: a reader that stops reading, or leaves, holds up the log alone."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
from http.client import HTTPConnection

import pytest

from probity.service.process.logs import MOST_LINES, Background
from tests.support.bundles import Synthetic
from tests.support.processes import wait_until
from tests.support.server import ROOT, TIMEOUT, environment
from tests.support.sockets import free_port

PIPE_BYTES = 2**16


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("probity", logging.INFO, __file__, 1, text, None, None)


def test_lines_that_nobody_reads_are_left_out_and_counted() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w") as writer:
        handler = Background(writer)
        line = "x" * (PIPE_BYTES - 1)
        handler.emit(record(line))  # fills the pipe
        handler.flush()
        for number in range(MOST_LINES + 10):
            handler.emit(record(str(number)))
        found = list[str]()
        while len(found) < MOST_LINES + 2:
            found.append(reader.readline().decode().rstrip("\n"))
            handler.flush()
    (said,) = [text for text in found if "left out" in text]
    found.remove(said)
    assert said in {f"{count} lines of the log were left out: nobody read it" for count in (9, 10)}  # one in the thread
    assert found == [line, *map(str, range(len(found) - 1))]


def test_a_fork_writes_by_a_thread_of_its_own() -> None:
    reading, writing = os.pipe()
    with open(reading) as reader, open(writing, "w") as writer:
        handler = Background(writer)
        handler.emit(record("parent"))
        handler.flush()
        child = os.fork()
        if not child:
            handler.emit(record("child"))
            handler.flush()
            os._exit(0)
        os.waitpid(child, 0)
        assert [reader.readline(), reader.readline()] == ["parent\n", "child\n"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_log_that_nobody_reads_holds_up_no_request(classification: Synthetic, workers: str) -> None:
    port = free_port()
    command = [sys.executable, "-m", "probity.service", str(classification.path), "--port", str(port)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(PROBITY_WORKERS=workers), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        wait_until(lambda: is_ready(port))
        with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:
            for _ in range(8 * PIPE_BYTES // 500):
                connection.request("GET", f"/{'x' * 500}")
                assert connection.getresponse().read()
        assert is_ready(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
        process.wait(TIMEOUT)
        assert process.stdout is not None
        process.stdout.close()


def is_ready(port: int) -> bool:
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:
        try:
            connection.request("GET", "/health/ready")
            return connection.getresponse().status == 200
        except ConnectionError:
            return False
