"""One worker process of several: its life, and how its parent sees it."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path

from service.bundle import BundleError
from service.process.ending import Ending
from service.process.server import build_server
from service.security.api_keys import KeyFileError
from service.settings import Settings

STARTUP_FAILURE = 3


@dataclass
class Worker:
    """A process; it writes to its end of the line once it serves, and every second from then on. `heard`: when last."""

    process: SpawnProcess
    line: Connection
    far_end: Connection
    started: bool = False
    heard: float = 0.0

    def silent_for(self) -> float:
        """Seconds since it last wrote."""
        return time.monotonic() - self.heard

    def listen(self) -> None:
        """Take in what it wrote."""
        while not self.line.closed and self.line.poll():
            try:
                self.line.recv_bytes()
            except (EOFError, ConnectionError):  # it is about to end
                return
            self.started, self.heard = True, time.monotonic()

    def stop(self, number: int) -> None:
        """Say that all stop, and send the signal. One that is still starting handles none yet, and SIGTERM ends it
        quietly."""
        with contextlib.suppress(OSError):
            self.line.send_bytes(b"stop")
        if self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, number if self.started else signal.SIGTERM)


def work(settings: Settings, listener: socket.socket, line: Connection, leftover: Path | None) -> None:
    """The life of a worker process; where its parent was killed, it removes the folder that was its parent's task."""
    os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the parent alone, which tells its workers
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        # The end of the line is readable once the parent says that all stop, and once it has gone.
        server = build_server(settings, lambda: _tell(line), line.poll, Ending())
    except (BundleError, KeyFileError) as error:  # it was sound when the parent looked
        sys.exit(f"error: {error}")
    server.run([listener])
    if leftover is not None and not _parent().is_alive():
        shutil.rmtree(leftover, ignore_errors=True)
    sys.exit(0 if server.started else STARTUP_FAILURE)


def _tell(line: Connection) -> None:
    """A parent that was killed hears nothing; what was asked of this worker is answered all the same."""
    with contextlib.suppress(ConnectionError):
        line.send_bytes(b"alive")


def _parent() -> BaseProcess:
    parent = multiprocessing.parent_process()
    assert parent is not None
    return parent


def _end_with_the_parent() -> None:
    _parent().join()
    os.kill(os.getpid(), signal.SIGTERM)
