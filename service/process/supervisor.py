"""Several worker processes on one listening socket: watched, replaced when they die, drained at the end.

Each worker is a whole service with its own models. They share the socket, so the kernel gives a connection to whichever
accepts first, and their metrics, through files in `PROMETHEUS_MULTIPROC_DIR`.
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

from service.process.server import SIGNALS
from service.process.worker import STARTUP_FAILURE, Worker, work
from service.settings import Settings

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# Between attempts at a worker that cannot start, so that they do not take the CPU from those that serve.
RETRY_SECONDS = 1.0
# After the time to finish, how long the end itself may take.
GRACE_SECONDS = 10.0
log = logging.getLogger("probity")


class Supervisor:
    """`settings.workers` processes that serve on `listener`; `own_folder`: the folder of their metrics is not kept."""

    def __init__(self, settings: Settings, listener: socket.socket, metrics_folder: Path, own_folder: bool) -> None:
        self.settings, self.listener = settings, listener
        self.metrics_folder, self._leftover = metrics_folder, metrics_folder if own_folder else None
        self._address = listener.getsockname()
        self._spawn = multiprocessing.get_context("spawn")
        self._workers: list[Worker] = []
        self._serving = False
        self._status = 0
        self._last_call: float | None = None  # when those that have not ended yet are killed

    def run(self) -> int:
        """Until told to stop; the exit status."""
        with _signals() as told:
            for _ in range(self.settings.workers):
                self._start()
            while self._workers:
                lines, ends = zip(*((worker.line, worker.process.sentinel) for worker in self._workers), strict=True)
                wait([told, *ends, *lines], self._patience())
                self._obey(told)
                self._hear()
                self._kill_the_silent()
                for worker in [worker for worker in self._workers if not worker.process.is_alive()]:
                    self._bury(worker, told)
        return self._status

    def _start(self) -> None:
        line, far_end = self._spawn.Pipe()
        process = self._spawn.Process(target=work, args=(self.settings, self.listener, far_end, self._leftover))
        # Inherited: until it handles signals, a terminal's Ctrl-C is no matter of the worker's.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.start()
        finally:
            signal.signal(signal.SIGINT, handler)
        self._workers.append(Worker(process, line, far_end))

    def _hear(self) -> None:
        for worker in self._workers:
            worker.listen()
        if not self._serving and all(worker.started for worker in self._workers) and self._last_call is None:
            self._serving = True
            host, port = self._address[:2]
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            log.info("Probity running on http://%s with %d workers", place, len(self._workers))

    def _kill_the_silent(self) -> None:
        """A worker whose event loop stands still holds connections that it never answers."""
        if self._last_call is not None:  # at the end they fall silent in order
            return
        for worker in self._workers:
            if worker.started and time.monotonic() - worker.heard > self.settings.hang_seconds:
                log.error(
                    "Worker %d has shown no sign of life for %g s", worker.process.pid, self.settings.hang_seconds
                )
                worker.process.kill()
                worker.heard = math.inf

    def _obey(self, told: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in told.recv(100):
                self._stop(number)
        if self._last_call is not None and time.monotonic() > self._last_call:
            log.error("%d workers did not end in time and are killed", len(self._workers))
            for worker in self._workers:
                worker.process.kill()
            self._last_call = time.monotonic() + GRACE_SECONDS

    def _stop(self, number: int) -> None:
        self.listener.close()
        seconds = self.settings.drain_seconds + self.settings.shutdown_seconds + GRACE_SECONDS
        self._last_call = self._last_call or time.monotonic() + seconds
        for worker in self._workers:
            worker.stop(number)

    def _patience(self) -> float | None:
        if self._last_call is None:
            return self.settings.hang_seconds if self._serving else None
        return max(0.0, self._last_call - time.monotonic())

    def _bury(self, worker: Worker, told: socket.socket) -> None:
        self._workers.remove(worker)
        pid, status = worker.process.pid, worker.process.exitcode
        worker.process.close()
        worker.line.close()
        worker.far_end.close()
        metrics_files.mark_process_dead(pid, str(self.metrics_folder))  # type: ignore[no-untyped-call]
        if self._last_call is not None:
            return
        if not self._serving:
            # Who sends a signal to every process of a group may have sent it to the worker first.
            wait([told], RETRY_SECONDS)
            self._obey(told)
            if self._last_call is not None:
                return
            log.error("Worker %d ended with status %s before it served: giving up", pid, status)
            self._status = STARTUP_FAILURE
            self._stop(signal.SIGTERM)
            return
        log.error("Worker %d ended with status %s: starting another", pid, status)
        if not worker.started:
            wait([told], RETRY_SECONDS)
            self._obey(told)
        if self._last_call is None:
            self._start()


def supervise(settings: Settings) -> int:
    """Serve with several workers until told to stop; the exit status. `OSError` where there is no address to listen on
    or no folder for the metrics."""
    with _metrics_folder() as (folder, own), _listener(settings) as listener:
        return Supervisor(settings, listener, folder, own).run()


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that receives the number of each signal, as a byte."""
    told, tell = socket.socketpair()
    with told, tell:
        told.setblocking(False)
        tell.setblocking(False)

        def tell_of(number: int, _: object) -> None:
            tell.send(bytes([number]))

        previous = {number: signal.signal(number, tell_of) for number in SIGNALS}
        try:
            yield told
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _listener(settings: Settings) -> Iterator[socket.socket]:
    """Bound, and not listening: connections come once a worker can take them."""
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        yield listener


@contextlib.contextmanager
def _metrics_folder() -> Iterator[tuple[Path, bool]]:
    """The one that is given, or (True) a new one in memory that goes with the block. Workers inherit its name."""
    if given := os.environ.get(METRICS_FOLDER):
        if not Path(given).is_dir():
            raise NotADirectoryError(f"{METRICS_FOLDER}: found {given!r}, expected an existing folder")
        for file in Path(given).glob("*_[0-9]*.db"):  # what processes that were killed have left there
            file.unlink(missing_ok=True)
        yield Path(given), False
        return
    shared_memory = Path("/dev/shm")  # noqa: S108  made below with a name of its own
    root = shared_memory if os.access(shared_memory, os.W_OK) else None  # the disk may be read-only
    folder = tempfile.mkdtemp(prefix="probity-metrics-", dir=root)
    os.environ[METRICS_FOLDER] = folder
    try:
        yield Path(folder), True
    finally:
        del os.environ[METRICS_FOLDER]
        shutil.rmtree(folder, ignore_errors=True)
