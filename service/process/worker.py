"""One worker process: what runs in it, and the handle that its parent keeps."""

import contextlib
import logging.config
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

from ..bundle import BundleError
from ..feedback.receipts import SecretFileError
from ..monitoring.audit_file import AuditFileError
from ..security.api_keys import KeyFileError
from ..settings import Settings
from .forced_exit import ForcedExit
from .logs import log_config
from .server import build_server

STARTUP_FAILURE = 3
log = logging.getLogger("demur")


@dataclass
class Worker:
    """A process that sends a heartbeat through its end of the pipe once it serves, and every second from then on."""

    process: SpawnProcess
    pipe: Connection
    worker_end: Connection
    slot: int
    started: bool = False
    last_heartbeat: float = 0.0

    def silent_seconds(self) -> float:
        """Seconds since the last heartbeat."""
        return time.monotonic() - self.last_heartbeat

    def read_heartbeats(self) -> None:
        """Take in the heartbeats that have come."""
        while not self.pipe.closed and self.pipe.poll():
            try:
                self.pipe.recv_bytes()
            except (EOFError, ConnectionError):  # it is about to end
                return
            self.started, self.last_heartbeat = True, time.monotonic()

    def stop(self, number: int) -> None:
        """Announce that all workers stop, and send signal `number`, or SIGTERM to one that is still starting: it
        handles no signals yet, and SIGTERM ends it quietly."""
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(b"stop")
        if self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, number if self.started else signal.SIGTERM)

    def send(self, number: int) -> None:
        """Send a signal that does not end it; one that is still starting handles none yet."""
        if self.started and self.process.pid is not None and self.process.exitcode is None:
            os.kill(self.process.pid, number)

    def close(self) -> None:
        """Release what the process held, which has ended."""
        self.process.close()
        self.pipe.close()
        self.worker_end.close()


def run_worker(
    settings: Settings, listener: socket.socket, pipe: Connection, slot: int, metrics_folder: Path | None
) -> None:
    """Serve in this process, as the worker of this number. Where the parent was killed, remove `metrics_folder` in its
    place."""
    os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the parent alone, which stops its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.config.dictConfig(log_config(settings))  # uvicorn does so later than the first lines come
    try:
        # The pipe is readable once the parent announces that all workers stop, and once the parent is gone.
        server = build_server(settings, lambda: _send_heartbeat(pipe), pipe.poll, ForcedExit(), slot)
    except (
        AuditFileError,
        BundleError,
        KeyFileError,
        SecretFileError,
    ) as error:  # it was valid when the parent checked
        log.error("%s", error)
        sys.exit(1)
    server.run([listener])
    if metrics_folder is not None and not _parent().is_alive():
        shutil.rmtree(metrics_folder, ignore_errors=True)
    sys.exit(0 if server.started else STARTUP_FAILURE)


def _send_heartbeat(pipe: Connection) -> None:
    """Without a parent that reads it, go on all the same: requests of this worker are still answered."""
    with contextlib.suppress(ConnectionError):
        pipe.send_bytes(b"alive")


def _parent() -> BaseProcess:
    parent = multiprocessing.parent_process()
    assert parent is not None
    return parent


def _end_with_parent() -> None:
    _parent().join()
    os.kill(os.getpid(), signal.SIGTERM)
