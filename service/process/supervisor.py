"""Several worker processes on one listening socket: watched, replaced when they die, drained at the end.

Each worker is a whole service with its own models. The workers share the socket, so the kernel gives a connection to
whichever accepts first, and their metrics, through files in `PROMETHEUS_MULTIPROC_DIR`.

uvicorn's own `Multiprocess` (0.54) is not used, since it differs where it matters here:

* A thread answers its health checks, also while the event loop stands still or a batch hangs. Here the event loop sends
  heartbeats, and only while batches are computed.
* It checks workers one after the other, and each may block signals and the other checks for seconds.
* A replacement that fails to start with status 3 stops the whole service; any other failing worker is restarted twice a
  second for ever, even if the service has never served.
* It waits for draining workers without limit, ends with status 0 whatever happened, and sends every signal as SIGTERM.
* It has no hook for dead workers, whose metrics files must be cleaned up, and none to tell a worker whether the others
  stop, too: the last ones to listen must complete handshakes before they close the socket.
* Its workers outlive a parent that was killed.
"""

import contextlib
import logging
import math
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path

from prometheus_client import multiprocess as metrics_files

from ..monitoring.metrics import SHARED_FOLDER
from ..settings import Settings
from .server import handled_signals
from .startup_signals import in_terminal
from .worker import STARTUP_FAILURE, Worker, run_worker

# Between attempts to start a worker, so that failing starts do not take the CPU from workers that serve.
RETRY_SECONDS = 1.0
# How long the exit itself may take after the time to finish.
GRACE_SECONDS = 10.0
log = logging.getLogger("demur")


class Supervisor:
    """`settings.workers` processes that serve on `listener`; with `owns_folder`, the metrics' folder is temporary."""

    def __init__(self, settings: Settings, listener: socket.socket, metrics_folder: Path, owns_folder: bool) -> None:
        self.settings, self.listener = settings, listener
        self.metrics_folder, self._temporary = metrics_folder, metrics_folder if owns_folder else None
        self._address = listener.getsockname()
        self._spawn = multiprocessing.get_context("spawn")
        self._workers: list[Worker] = []
        self._serving = False
        self._status = 0
        self._kill_at: float | None = None  # set once all stop: when workers that have not ended are killed

    def run(self) -> int:
        """Run until a signal stops the service; returns the exit status."""
        with _signals() as signals:
            for slot in range(self.settings.workers):
                self._start(slot)
            while self._workers:
                pipes, ends = zip(*((worker.pipe, worker.process.sentinel) for worker in self._workers), strict=True)
                wait([signals, *ends, *pipes], self._timeout())
                self._handle_signals(signals)
                self._read_heartbeats()
                self._kill_hung()
                for worker in [worker for worker in self._workers if not worker.process.is_alive()]:
                    self._reap(worker, signals)
        return self._status

    def _start(self, slot: int) -> None:
        """slot: the number of the worker, which a replacement takes over, with the files of its metrics."""
        pipe, worker_end = self._spawn.Pipe()
        process = self._spawn.Process(
            target=run_worker, args=(self.settings, self.listener, worker_end, slot, self._temporary)
        )
        # The worker inherits this: until it handles signals itself, it ignores a terminal's Ctrl-C.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        self._workers.append(Worker(process, pipe, worker_end, slot))

    def _read_heartbeats(self) -> None:
        for worker in self._workers:
            worker.read_heartbeats()
        if not self._serving and all(worker.started for worker in self._workers) and self._kill_at is None:
            self._serving = True
            host, port = self._address[:2]
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            log.info("Demur running on http://%s with %d workers", address, len(self._workers))

    @property
    def hang_seconds(self) -> float:
        """How long a worker may send no heartbeat."""
        return max(5.0, self.settings.compute_timeout_seconds / 2)  # heartbeats come once a second

    def _kill_hung(self) -> None:
        """Kill workers without heartbeats: their connections would never be answered."""
        if self._kill_at is not None:  # workers that stop send no heartbeats
            return
        seconds = self.hang_seconds
        for worker in self._workers:
            if worker.started and worker.silent_seconds() > seconds:
                log.error("Worker %d has shown no sign of life for %g s", worker.process.pid, seconds)
                worker.process.kill()
                worker.last_heartbeat = math.inf

    def _handle_signals(self, signals: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in signals.recv(100):
                self._handle(number)
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            log.error("%d workers did not end in time and are killed", len(self._workers))
            for worker in self._workers:
                worker.process.kill()
            self._kill_at = time.monotonic() + GRACE_SECONDS

    def _handle(self, number: int) -> None:
        """SIGHUP goes on to the workers, which look for new bundles, but where a terminal has closed."""
        if number != signal.SIGHUP:
            self._stop(number)
        elif in_terminal():
            self._stop(signal.SIGTERM)
        else:
            for worker in self._workers:
                worker.send(signal.SIGHUP)

    def _stop(self, number: int) -> None:
        self.listener.close()
        seconds = self.settings.drain_seconds + self.settings.shutdown_seconds + GRACE_SECONDS
        self._kill_at = self._kill_at or time.monotonic() + seconds
        for worker in self._workers:
            worker.stop(number)

    def _timeout(self) -> float | None:
        if self._kill_at is None:
            return self.hang_seconds if self._serving else None
        return max(0.0, self._kill_at - time.monotonic())

    def _reap(self, worker: Worker, signals: socket.socket) -> None:
        """Clean up after a worker that has ended, and replace it unless all stop."""
        self._workers.remove(worker)
        pid, status = worker.process.pid, worker.process.exitcode
        worker.close()
        metrics_files.mark_process_dead(worker.slot, str(self.metrics_folder))  # type: ignore[no-untyped-call]
        if self._kill_at is None and not (self._serving and worker.started):
            # Do not retry at full speed, nor give up early: a signal to the whole process group may have reached the
            # worker first.
            wait([signals], RETRY_SECONDS)
            self._handle_signals(signals)
        if self._kill_at is not None:
            return
        if self._serving:
            log.error("Worker %d ended with status %s: starting another", pid, status)
            self._start(worker.slot)
        else:
            log.error("Worker %d ended with status %s before it served: giving up", pid, status)
            self._status = STARTUP_FAILURE
            self._stop(signal.SIGTERM)


def supervise(settings: Settings) -> int:
    """Serve with several workers until a signal stops them; returns the exit status. `OSError` for a taken address."""
    with _metrics_folder() as (folder, owns_folder), listener(settings) as listening:
        return Supervisor(settings, listening, folder, owns_folder).run()


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket from which the number of each signal can be read, as a byte."""
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)

        def handle(number: int, _: object) -> None:
            writer.send(bytes([number]))

        with handled_signals(handle):
            yield reader


@contextlib.contextmanager
def listener(settings: Settings, port: int | None = None) -> Iterator[socket.socket]:
    """A socket that is bound but not listening: connections come once a worker can take them. port: in place of the
    settings' own."""
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listening.family == socket.AF_INET6:  # as asyncio has it: one worker and several take the same addresses
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((settings.host, settings.port if port is None else port))
        yield listening


@contextlib.contextmanager
def _metrics_folder() -> Iterator[tuple[Path, bool]]:
    """The folder from the environment, or (True) a new one in memory that is removed afterwards; workers inherit it."""
    if given := os.environ.get(SHARED_FOLDER):
        yield Path(given), False
        return
    shared_memory = Path("/dev/shm")  # noqa: S108  mkdtemp picks an unused name
    root = shared_memory if os.access(shared_memory, os.W_OK) else None  # the disk may be read-only
    folder = tempfile.mkdtemp(prefix="demur-metrics-", dir=root)
    os.environ[SHARED_FOLDER] = folder
    try:
        yield Path(folder), True
    finally:
        del os.environ[SHARED_FOLDER]
        shutil.rmtree(folder, ignore_errors=True)
