"""The log: time, level, message and request of each line, written by a thread, which a reader may keep waiting."""

import contextlib
import copy
import datetime as dt
import logging
import os
import queue
import threading
from typing import Any, TextIO

from uvicorn.config import LOGGING_CONFIG

from probity.service.http.request_id import current_id
from probity.service.settings import Settings

MOST_LINES = 10_000
FLUSH_SECONDS = 1.0


class PathOnly(logging.Filter):
    """Removes the query from lines of the access log: the service does not use it, and it may hold a key."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every line."""
        if isinstance(record.args, tuple) and len(record.args) == 5:  # client, method, target, version, status
            client, method, target, *rest = record.args
            record.args = (client, method, f"{target}".partition("?")[0], *rest)
        return True


class WithContext(logging.Filter):
    """Adds the time (UTC, milliseconds) as `moment`, and as `request` the id of the request, empty outside of one."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every line."""
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
        record.moment = moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        identity = getattr(record, "request_id", None) or current_id()  # given where no context has it
        record.request = "" if identity is None else f" request={identity}"
        return True


class Background(logging.StreamHandler[TextIO]):
    """Writes lines in a thread of its own: where nobody reads the log, requests are answered nevertheless.

    At most `MOST_LINES` wait; how many more there were is said when the log goes on.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._process: int | None = None  # whose thread writes: it does not live on in a fork

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the line over; a stream without a file, as in tests, gets it at once."""
        try:
            self.stream.fileno()
        except OSError:
            super().emit(record)
            return
        if self._process != os.getpid():
            self._process, self._dropped, self._lines = os.getpid(), 0, queue.Queue[str](MOST_LINES)
            threading.Thread(target=self._write, args=(self._lines,), name="log", daemon=True).start()
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until everything is written, and no longer than a second."""
        if self._process != os.getpid():
            return
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, FLUSH_SECONDS)

    def _write(self, lines: "queue.Queue[str]") -> None:
        while True:
            text = lines.get() + self.terminator
            if self._dropped:
                text += f"{self._dropped} lines of the log were left out: nobody read it{self.terminator}"
                self._dropped = 0
            left = text.encode(errors="backslashreplace")
            with contextlib.suppress(OSError):  # closed, or a full disk: the next line may fare better
                # Not through the stream, whose lock a write that never ends would keep at the process's own end.
                while left:
                    left = left[os.write(self.stream.fileno(), left) :]
            lines.task_done()


def log_config(settings: Settings) -> dict[str, Any]:
    """uvicorn's logging configuration, with time and request in each line, and a logger for the service's messages."""
    config = copy.deepcopy(LOGGING_CONFIG)
    config["filters"] = {"path_only": {"()": PathOnly}, "context": {"()": WithContext}}
    for formatter in config["formatters"].values():
        formatter["fmt"] = f"%(moment)s {formatter['fmt']}%(request)s"
    for handler in config["handlers"].values():
        handler |= {"class": f"{__name__}.{Background.__name__}", "filters": ["context"]}
    config["loggers"]["uvicorn.access"]["filters"] = ["path_only"]
    config["loggers"]["probity"] = {"handlers": ["default"], "level": settings.log_level.upper()}
    return config
