"""The log is written aside: a reader that stops reading, or leaves, holds up the log alone."""

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from http.client import HTTPConnection

import pytest

from demur.service.process.logs import (
    LINES_AT_ONCE,
    MOST_CHARACTERS,
    MOST_LINES,
    Background,
    JsonLines,
    LogWriter,
    _told_in_json,
)
from tests.support.bundles import Synthetic
from tests.support.processes import wait_until
from tests.support.server import ROOT, TIMEOUT, environment, running
from tests.support.sockets import free_port

PIPE_BYTES = 2**16


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("demur", logging.INFO, __file__, 1, text, None, None)


def test_lines_that_nobody_reads_are_left_out_and_counted() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w") as writer:
        handler = Background(writer)
        line, count = "x" * (PIPE_BYTES - 1), 3 * MOST_LINES
        handler.emit(record(line))  # fills the pipe
        handler.flush()
        for number in range(count):
            handler.emit(record(str(number)))
        found, left_out = [reader.readline().decode().rstrip("\n")], 0
        while len(found) + left_out < count + 1:
            text = reader.readline().decode().rstrip("\n")
            if said := re.fullmatch(r"(\d+) lines of the log were left out: nobody read it", text):
                left_out += int(said[1])
            else:
                found.append(text)
    assert left_out >= count - MOST_LINES - LINES_AT_ONCE
    numbers = [int(text) for text in found[1:]]
    assert found[0] == line
    # The writer's thread may take its first lines after the queue is full: what is left out has no one place.
    assert numbers == sorted(set(numbers))
    assert numbers[:MOST_LINES] == list(range(MOST_LINES))


def test_long_lines_that_nobody_reads_take_some_megabytes_at_most() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w") as writer:
        handler = Background(writer)
        line, most = "x" * 99_999, MOST_CHARACTERS // 100_000 + 1
        for _ in range(2 * most):
            handler.emit(record(line))
        kept = 0
        while (text := reader.readline().decode().rstrip("\n")) == line:
            kept += 1
        left_out = re.fullmatch(r"(\d+) lines of the log were left out: nobody read it", text)
        assert left_out is not None
        assert (kept, int(left_out[1])) == (most, most)
        handler.emit(record("there is room again"))
        assert reader.readline() == b"there is room again\n"


def test_the_lines_of_several_streams_stay_in_their_order() -> None:
    reading, writing = os.pipe()
    again = os.dup(writing)
    with open(reading) as reader, open(writing, "w") as first, open(again, "w") as second:
        writer = LogWriter()
        handlers = Background(first, writer), Background(second, writer)
        for number in range(1000):
            handlers[number % 2].emit(record(str(number)))
        assert [reader.readline() for _ in range(1000)] == [f"{number}\n" for number in range(1000)]


def test_the_first_lines_of_several_threads_all_come() -> None:
    reading, writing = os.pipe()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with open(writing, "w") as stream:
            for _ in range(30):
                writer, together = LogWriter(), threading.Barrier(4)

                def write(number: int, writer: LogWriter = writer, together: threading.Barrier = together) -> None:
                    handler = Background(stream, writer)
                    together.wait(TIMEOUT)
                    handler.handle(record(str(number)))

                threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(TIMEOUT)
                writer.flush()
    finally:
        sys.setswitchinterval(interval)
    with open(reading) as reader:
        assert Counter(reader) == {f"{number}\n": 30 for number in range(4)}


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
    command = [sys.executable, "-m", "demur.service", str(classification.path), "--port", str(port)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(DEMUR_WORKERS=workers), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
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


def test_lines_in_json(classification: Synthetic) -> None:
    with running(classification.path, DEMUR_LOG_FORMAT="json") as server:
        assert server.request("GET", "/model?key=secret", headers={"X-Request-ID": "mine"})[0] == 200
        server.wait_for('"request": "mine"')
    lines = [json.loads(line) for line in server.lines]
    assert all(line.keys() >= {"time", "level", "message", "logger"} for line in lines)
    (access,) = [line for line in lines if line.get("request") == "mine"]
    assert (access["method"], access["path"], access["status"], access["level"]) == ("GET", "/model", 200, "info")
    assert not any("secret" in json.dumps(line) for line in lines)
    assert any(re.search("serving synthetic version 1", line["message"]) for line in lines)


def test_errors_in_json_keep_their_traceback_in_one_line() -> None:
    try:
        raise KeyError("odd")
    except KeyError:
        found = logging.LogRecord("demur", logging.ERROR, __file__, 1, "it failed: %s", ("é",), sys.exc_info())
    line = JsonLines().format(found)
    assert "\n" not in line
    assert json.loads(line)["message"] == "it failed: é"
    assert "KeyError: 'odd'" in json.loads(line)["exception"]


def test_what_was_left_out_is_told_in_json() -> None:
    told = json.loads(_told_in_json("3 lines of the log were left out"))
    assert (told["level"], told["message"]) == ("warning", "3 lines of the log were left out")
    assert told["time"].endswith("Z")


def test_addresses_that_are_tried_again_are_not_told() -> None:
    """Those of a bundle's layers in a registry are signed, and urllib3 warns with them; what failed is told without."""
    code = (
        "import logging.config; from demur.service.process.logs import log_config; "
        "from demur.service.settings import Settings; logging.config.dictConfig(log_config(Settings())); "
        "logging.getLogger('urllib3.connectionpool').warning('Retrying: /layer?sig=secret'); "
        "logging.getLogger('demur').warning('did not answer')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "did not answer" in done.stderr
    assert "secret" not in done.stderr
