"""The log: time, level, message and request of each line, written by a thread, which a reader may keep waiting."""

import contextlib
import copy
import itertools
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import Any, TextIO

from uvicorn.config import LOGGING_CONFIG

from ..http.access_log import ACCESS
from ..http.request_id import current_id
from ..settings import Settings

MOST_LINES, MOST_CHARACTERS, LINES_AT_ONCE = 10_000, 2**24, 1000
TOGETHER_SECONDS, FLUSH_SECONDS = 0.02, 1.0


class WithContext(logging.Filter):
    """Adds the time (UTC, milliseconds) as `moment`, and as `request` the id of the request, empty outside of one."""

    def __init__(self) -> None:
        super().__init__()
        self._second, self._text = -1, ""  # the last one, and how it is written

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every line."""
        second, text = int(record.created), self._text
        if second != self._second:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._text, self._second = text, second
        record.moment = f"{text}.{int(record.created * 1000) % 1000:03d}Z"
        identity = getattr(record, "request_id", None) or current_id()  # given where no context has it
        record.request = "" if identity is None else f" request={identity}"
        return True


class JsonLines(logging.Formatter):
    """A JSON object a line: `time`, `level`, `message`, `logger`, and where there are such `request`, `exception`, and
    the fields of the access log."""

    def format(self, record: logging.LogRecord) -> str:
        """The object."""
        line: dict[str, Any] = {
            "time": getattr(record, "moment", None),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
            "request": (getattr(record, "request", "") or "").removeprefix(" request=") or None,
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: value for name, value in line.items() if value is not None}, ensure_ascii=False)


class LogWriter:
    """Writes the lines of all streams in their order, in a thread: where nobody reads the log, requests are answered
    nevertheless.

    The thread is woken for the first of the lines that come within `TOGETHER_SECONDS`: woken for each, it took an
    eighth of the requests that a service answers. At most `MOST_LINES` wait, of `MOST_CHARACTERS` together; how many
    more there were is said when the log goes on.
    """

    def __init__(self, told: Callable[[str], str] = str) -> None:
        """told: a line of the writer's own, as the log has lines."""
        self._told = told
        self.lock = threading.RLock()  # of all handlers that share it: `put` takes one line at a time
        self._process: int | None = None  # whose thread writes: it does not live on in a fork

    def put(self, descriptor: int, line: str) -> None:
        """Write the line, which ends as lines do, to this file descriptor, soon."""
        if self._process != os.getpid():
            self._start()
        if len(self._lines) >= MOST_LINES or self._put - self._written > MOST_CHARACTERS:
            self._dropped += 1
            return
        self._put += len(line)
        self._lines.append((descriptor, line))
        if not self._some.is_set():
            self._some.set()

    def flush(self) -> None:
        """Wait until everything is written, and no longer than a second."""
        end = time.monotonic() + FLUSH_SECONDS
        while self._process == os.getpid() and (self._lines or self._writing) and time.monotonic() < end:
            self._hurry.set()
            time.sleep(TOGETHER_SECONDS / 10)

    def _start(self) -> None:
        self._process, self._dropped, self._writing = os.getpid(), 0, False
        self._put, self._written = 0, 0  # characters in all, each written by one thread alone
        self._lines, self._some, self._hurry = deque[tuple[int, str]](), threading.Event(), threading.Event()
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def _write(self) -> None:
        lines, some, hurry = self._lines, self._some, self._hurry
        while True:
            some.wait()
            hurry.wait(TOGETHER_SECONDS)
            some.clear()  # before lines are taken: what comes after that wakes this thread again
            self._writing = True
            while lines:
                taken = [lines.popleft() for _ in range(min(len(lines), LINES_AT_ONCE))]
                size = sum(len(line) for _, line in taken)
                if self._dropped:
                    said = self._told(f"{self._dropped} lines of the log were left out: nobody read it")
                    self._dropped = 0
                    taken.append((taken[-1][0], f"{said}\n"))
                for descriptor, group in itertools.groupby(taken, key=itemgetter(0)):
                    _write_all(descriptor, "".join(line for _, line in group))
                self._written += size
            self._writing = False
            hurry.clear()


def _write_all(descriptor: int, text: str) -> None:
    """Not through the stream, whose lock a write that never ends would keep at the process's own end."""
    left = text.encode(errors="backslashreplace")
    with contextlib.suppress(OSError):  # closed, or a full disk: the next lines may fare better
        while left:
            left = left[os.write(descriptor, left) :]


class Background(logging.StreamHandler[TextIO]):
    """Hands its lines to a writer, which other handlers may share."""

    def __init__(self, stream: TextIO | None = None, writer: LogWriter | None = None) -> None:
        super().__init__(stream)
        self._writer = writer or LogWriter()
        self.lock = self._writer.lock  # registered with `logging`, which makes the lock new after a fork

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the line over; a stream without a file, as in tests, gets it at once."""
        try:
            descriptor = self.stream.fileno()
        except OSError:
            super().emit(record)
            return
        try:
            self._writer.put(descriptor, self.format(record) + self.terminator)
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until everything is written, and no longer than a second."""
        self._writer.flush()


def _told_in_json(message: str) -> str:
    record = logging.LogRecord("demur", logging.WARNING, __file__, 0, message, None, None)
    WithContext().filter(record)
    return JsonLines().format(record)


def log_config(settings: Settings) -> dict[str, Any]:
    """uvicorn's logging configuration, with time and request in each line, and loggers for the service's messages and
    its requests."""
    config = copy.deepcopy(LOGGING_CONFIG)
    config["filters"] = {"context": {"()": WithContext}}
    config["formatters"]["default"]["fmt"] = "%(moment)s %(levelprefix)s %(message)s%(request)s"
    # Without uvicorn's colours, in a fraction of the time: a line comes with every request.
    config["formatters"]["access"] = {"format": "%(moment)s %(levelname)s:     %(message)s%(request)s"}
    json_lines = settings.log_format == "json"
    writer = LogWriter(_told_in_json if json_lines else str)  # one for all streams, so that lines stay in their order
    if json_lines:
        config["formatters"] = {name: {"()": JsonLines} for name in config["formatters"]}
    for handler in config["handlers"].values():
        handler |= {"class": f"{__name__}.{Background.__name__}", "filters": ["context"], "writer": writer}
    config["loggers"][ACCESS] = {
        **config["loggers"].pop("uvicorn.access"),
        "level": settings.log_level.upper(),
    }
    config["loggers"]["demur"] = {"handlers": ["default"], "level": settings.log_level.upper()}
    # Not what it says of single headers: clients could fill the log. Nor which addresses are tried: layers' are signed.
    config["loggers"]["opentelemetry"] = {"handlers": ["default"], "level": "ERROR"}
    for part, level in (("opentelemetry.sdk", "WARNING"), ("opentelemetry.exporter", "WARNING"), ("urllib3", "ERROR")):
        config["loggers"][part] = {"level": level}
    return config
